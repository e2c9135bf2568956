/** Judgements of texts, in OpenAI's categories and those of the guard's own. */

/** OpenAI's categories (openai 7.57 `Moderation.Categories`): results always have all of them. */
export const CATEGORIES = [
  ...["harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent"],
  ...["self-harm", "self-harm/instructions", "self-harm/intent", "sexual", "sexual/minors", "violence"],
  "violence/graphic",
] as const;

/** A text to be judged: what somebody asks of a model, or what a model says. */
export interface Judged {
  side: "input" | "output";
  text: string;
}

export interface Judgement {
  flagged: boolean;
  /** From 0 to 1, by category. A category that is not here has 0. */
  scores: Readonly<Record<string, number>>;
  /** Tokens that the guard has read, where it tells them. */
  tokens?: number | undefined;
}

/** A guard that could not be asked, or whose answer says nothing. */
export class GuardFault extends Error {
  override readonly name = "GuardFault";
}

/** Scores from here on flag a category, where a guard tells no more than scores. */
const THRESHOLD = 0.5;

/** One judgement of several texts: flagged where one is. */
export function joined(judgements: readonly Judgement[]): Judgement {
  const scores: Record<string, number> = {};
  for (const each of judgements) {
    for (const [name, score] of Object.entries(each.scores)) scores[name] = Math.max(scores[name] ?? 0, score);
  }
  const tokens = judgements.reduce((sum, each) => sum + (each.tokens ?? 0), 0);
  return { flagged: judgements.some(({ flagged }) => flagged), scores, ...(tokens > 0 && { tokens }) };
}

/** The fields that OpenAI's moderations and those of a response have in common. */
export interface ModerationFields {
  flagged: boolean;
  categories: Record<string, boolean>;
  category_scores: Record<string, number>;
  category_applied_input_types: Record<string, ("text" | "image")[]>;
}

/** A judgement in OpenAI's shape, with all of its categories, and those of the guard's own. */
export function moderationFields({ flagged, scores }: Judgement): ModerationFields {
  const names = [...new Set<string>([...CATEGORIES, ...Object.keys(scores)])];
  const all = <Value>(of: (name: string) => Value) => Object.fromEntries(names.map((name) => [name, of(name)]));
  return {
    flagged,
    categories: all((name) => (scores[name] ?? 0) >= THRESHOLD),
    category_scores: all((name) => scores[name] ?? 0),
    category_applied_input_types: all(() => ["text"]),
  };
}

/** A guard is given so much of a text at once, in UTF-16 units: each has a context window. */
const PIECE_LENGTH = 12_000;

/** A text is judged in so many pieces at most. */
const MAX_PIECES = 64;

/** The pieces in which a text is judged; undefined of one that is too long. */
export function piecesOf(text: string): string[] | undefined {
  if (text.length > MAX_PIECES * PIECE_LENGTH) return undefined;
  const count = Math.max(1, Math.ceil(text.length / PIECE_LENGTH));
  return Array.from({ length: count }, (_, at) =>
    text.slice(at * PIECE_LENGTH, (at + 1) * PIECE_LENGTH).toWellFormed(),
  );
}
