import { type Bound, toEbnf } from "@responses-edge/grammar";
import { EXCLUDED, type Format } from "@responses-edge/harmony";
import { grammarOf, restOf } from "../bound-formats.ts";

/**
 * The rest of a structural tag's format after the beginning of an output. A grammar begins with the first generated
 * token, so an output that goes on after its exact tokens is bound to the rest alone.
 */

/** The texts that may follow a beginning. */
interface Rest {
  /** The format of what follows, where the beginning ends in the middle of the format; undefined if it cannot. */
  open: Format | undefined;
  /** The ends of texts of the format in the beginning: the parts of the beginning after each. */
  left: string[];
}

/** A part of a format that has no grammar of its rest. */
class Unknown extends Error {}

/** A format of the text of a message. */
type Body = Extract<Format, { type: "any_text" | "json_schema" | "regex" | "grammar" }>;

const NEVER: Rest = { open: undefined, left: [] };

/**
 * The value of `structured_outputs` for what may follow `begun`, the output so far with special tokens as their literals;
 * undefined if no text of the whole begins so, or its rest has no grammar. `whole` is that of `structuralTag`; its rest
 * takes time and memory in the length of both.
 */
export function restOfTag(
  { structural_tag: whole }: Record<string, unknown>,
  begun: string | undefined,
): { structural_tag: string } | undefined {
  if (begun === undefined || typeof whole !== "string") return undefined;
  try {
    const { type, format } = JSON.parse(whole) as { type: string; format: Format };
    const { open, left } = after(format, begun);
    // The model may stop here, and may go on as `open` says.
    const ended: Format[] = left.includes("") ? [constant("")] : [];
    const rest = either([...(open ? [open] : []), ...ended]);
    return rest && { structural_tag: JSON.stringify({ type, format: rest }) };
  } catch (error) {
    if (error instanceof Unknown) return undefined;
    throw error;
  }
}

function after(format: Format, begun: string): Rest {
  switch (format.type) {
    case "const_string":
      return afterConstant(format.value, begun);
    case "or":
      return joined(format.elements.map((element) => after(element, begun)));
    case "sequence":
      return afterSequence(format.elements, begun);
    case "tag": {
      const ends = either((Array.isArray(format.end) ? format.end : [format.end]).map(constant)) ?? constant("");
      return afterSequence([constant(format.begin), format.content, ends], begun);
    }
    default:
      return afterBody(format, begun);
  }
}

function afterConstant(value: string, begun: string): Rest {
  if (begun.startsWith(value)) return { open: undefined, left: [begun.slice(value.length)] };
  return value.startsWith(begun) ? { open: constant(value.slice(begun.length)), left: [] } : NEVER;
}

function afterSequence(elements: readonly Format[], begun: string): Rest {
  const open: Format[] = [];
  let left = [begun];
  for (const [index, element] of elements.entries()) {
    const rests = left.map((each) => after(element, each));
    const following = elements.slice(index + 1);
    for (const rest of rests) if (rest.open) open.push(sequence([rest.open, ...following]));
    left = [...new Set(rests.flatMap((rest) => rest.left))];
    if (left.length === 0) break;
  }
  return { open: either(open), left };
}

function joined(rests: readonly Rest[]): Rest {
  const open = rests.flatMap((rest) => (rest.open ? [rest.open] : []));
  return { open: either(open), left: [...new Set(rests.flatMap((rest) => rest.left))] };
}

/** The text of a message, which a special token ends. */
function afterBody(format: Body, begun: string): Rest {
  const marks = EXCLUDED.map((mark) => begun.indexOf(mark)).filter((at) => at >= 0);
  if (marks.length > 0) return { open: undefined, left: [begun.slice(Math.min(...marks))] };
  if (format.type === "any_text" || begun === "") return { open: format, left: [] };
  const rest = restOf(boundOf(format), begun);
  switch (rest.kind) {
    case "rules":
      return { open: { type: "grammar", grammar: toEbnf(rest.rules, { excludes: EXCLUDED }) }, left: [] };
    case "nothing":
      return { open: undefined, left: [""] };
    case "impossible":
      return NEVER;
    case "unknown":
      throw new Unknown();
  }
}

function boundOf(format: Exclude<Body, { type: "any_text" }>): Bound {
  switch (format.type) {
    case "json_schema":
      return { type: "json_schema", schema: format.json_schema };
    case "regex":
      return { type: "regex", pattern: format.pattern };
    case "grammar":
      return grammarOf(format.grammar);
  }
}

function constant(value: string): Format {
  return { type: "const_string", value };
}

function sequence(elements: readonly Format[]): Format {
  const [only] = elements;
  return elements.length === 1 && only ? only : { type: "sequence", elements: [...elements] };
}

function either(formats: readonly Format[]): Format | undefined {
  const [only] = formats;
  return formats.length > 1 ? { type: "or", elements: [...formats] } : only;
}
