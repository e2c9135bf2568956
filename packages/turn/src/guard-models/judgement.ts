/** Judgements of texts, in OpenAI's categories and in the guard's own. */

/** OpenAI's categories (openai 7.59 `Moderation.Categories`): results always have all of them. */
export const CATEGORIES = [
  ...["harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent"],
  ...["self-harm", "self-harm/instructions", "self-harm/intent", "sexual", "sexual/minors", "violence"],
  "violence/graphic",
] as const;

/** A text to judge, the input of a model or its output, and the images beside it. */
export interface Judged {
  side: "input" | "output";
  text: string;
  /** URLs, most of them with the image's data. */
  images?: readonly string[] | undefined;
}

export interface Judgement {
  flagged: boolean;
  /** From 0 to 1, by category. A missing category has 0. */
  scores: Readonly<Record<string, number>>;
  /** Tokens that the guard has read, if it reports them. */
  tokens?: number | undefined;
  /** Images were judged, too. */
  hasImages?: boolean | undefined;
}

/** A guard without an answer, or with an unreadable one. */
export class GuardFault extends Error {
  override readonly name = "GuardFault";
}

/** The score from which a category is flagged, if a guard gives only scores. */
const THRESHOLD = 0.5;

/** One judgement of several texts: flagged if one is. */
export function joined(judgements: readonly Judgement[]): Judgement {
  const scores: Record<string, number> = {};
  for (const each of judgements) {
    for (const [name, score] of Object.entries(each.scores)) scores[name] = Math.max(scores[name] ?? 0, score);
  }
  const tokens = judgements.reduce((sum, each) => sum + (each.tokens ?? 0), 0);
  const hasImages = judgements.some((each) => each.hasImages);
  const flagged = judgements.some((each) => each.flagged);
  return { flagged, scores, ...(tokens > 0 && { tokens }), ...(hasImages && { hasImages }) };
}

/** The common fields of OpenAI's moderations and of a response's moderation. */
export interface ModerationFields {
  flagged: boolean;
  categories: Record<string, boolean>;
  category_scores: Record<string, number>;
  category_applied_input_types: Record<string, ("text" | "image")[]>;
}

/** A judgement in OpenAI's shape, with all of its categories, and those of the guard's own. */
export function moderationFields({ flagged, scores, hasImages }: Judgement): ModerationFields {
  const names = [...new Set<string>([...CATEGORIES, ...Object.keys(scores)])];
  const all = <Value>(of: (name: string) => Value) => Object.fromEntries(names.map((name) => [name, of(name)]));
  return {
    flagged,
    categories: all((name) => (scores[name] ?? 0) >= THRESHOLD),
    category_scores: all((name) => scores[name] ?? 0),
    category_applied_input_types: all(() => (hasImages ? ["text", "image"] : ["text"])),
  };
}

/** The length of a text that a guard gets at once, in UTF-16 units: each guard has a context window. */
const PIECE_LENGTH = 12_000;

/** The maximum of pieces of a text. */
const MAX_PIECES = 64;

/** The maximum of images beside a text. */
export const MAX_IMAGES = 64;

/** The pieces in which a text is judged; undefined if it is too long. */
export function piecesOf(text: string): string[] | undefined {
  if (text.length > MAX_PIECES * PIECE_LENGTH) return undefined;
  const count = Math.max(1, Math.ceil(text.length / PIECE_LENGTH));
  return Array.from({ length: count }, (_, at) =>
    text.slice(at * PIECE_LENGTH, (at + 1) * PIECE_LENGTH).toWellFormed(),
  );
}
