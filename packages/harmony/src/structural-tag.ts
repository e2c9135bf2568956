import type { ToolNamespace } from "./message.ts";

/**
 * A grammar over headers and bodies, in xgrammar's structural tags, for requests with constraints: vLLM does the same
 * on its Harmony path (#45560), and measured far fewer malformed calls.
 */

export type Format =
  | { type: "any_text"; excludes: string[] }
  | { type: "const_string"; value: string }
  | { type: "json_schema"; json_schema: unknown; excludes?: string[] }
  | { type: "regex"; pattern: string }
  | { type: "grammar"; grammar: string }
  | { type: "sequence" | "or"; elements: Format[] }
  | { type: "tag"; begin: string; content: Format; end: string | string[] };

/** A body ends with `<|end|>`, or where the model stops: xgrammar allows no stop token under constraints. */
const BODY_END = ["<|end|>", ""];

/**
 * Special tokens that no text may contain: they end a message, or begin another. To a grammar a special token is the
 * text of its literal, which any string may have: the model would go on in a string that has ended for every reader.
 * `excludes` came with xgrammar 0.2; older versions ignore it. Tokens that stop the generation are never allowed in a
 * grammar.
 */
export const EXCLUDED = ["<|end|>", "<|start|>", "<|channel|>", "<|message|>"];

/** Any text that neither ends nor begins a message. */
export const ANY_TEXT: Format = { type: "any_text", excludes: EXCLUDED };

/**
 * JSON of a schema. With excluded tokens xgrammar drops the lengths of strings, and whole literals of an `enum`: then
 * the schema matters more.
 */
export function jsonOf(schema: unknown, excludes = true): Format {
  const text = JSON.stringify(schema);
  const isWorthMore = /"(?:min|max)Length"/.test(text) || text.includes("<|");
  return { type: "json_schema", json_schema: schema, ...(excludes && !isWorthMore && { excludes: EXCLUDED }) };
}

/** Calls of built-in tools, which the model makes in its reasoning: their bodies are unconstrained. */
export function builtinCalls({ name, tools }: ToolNamespace): Format[] {
  const recipients = tools.length === 0 ? [name] : tools.map((tool) => `${name}.${tool.name}`);
  return recipients.flatMap((recipient) =>
    ["analysis", "commentary"].flatMap((channel) =>
      [" code", " <|constrain|>json", ""].map((type) =>
        tag(`<|channel|>${channel} to=${recipient}${type}<|message|>`, ANY_TEXT),
      ),
    ),
  );
}

/** The messages that may come first: thoughts, and a preamble (none before an answer in a format). */
function withPreludes(ends: Format, withPreamble: boolean): Format {
  const thoughts = message("<|channel|>analysis<|message|>");
  const preamble = message("<|channel|>commentary<|message|>");
  const nothing = constant("");
  const preambles: Format[] = withPreamble ? [{ type: "or", elements: [nothing, preamble] }] : [];
  return sequence([{ type: "or", elements: [nothing, thoughts] }, ...preambles, ends]);
}

/** A message of free text, and the beginning of the next. */
function message(begin: string): Format {
  const text: Format = { type: "tag", begin, content: ANY_TEXT, end: "<|end|>" };
  return sequence([text, constant("<|start|>assistant")]);
}

function constant(value: string): Format {
  return { type: "const_string", value };
}

function sequence(elements: Format[]): Format {
  return { type: "sequence", elements };
}

function tag(begin: string, content: Format): Format {
  return { type: "tag", begin, content, end: BODY_END };
}

/**
 * Calls of a function with all headers that gpt-oss writes: the recipient in the channel's section, or in the role's. The
 * schema is there twice rather than once per header, since a request may have a thousand functions.
 */
export function functionCalls(to: string, body: Format): Format[] {
  const recipient = ` to=${to}`;
  const channels = ["commentary", "analysis"];
  const type = oneOf([" json<|message|>", " <|constrain|>json<|message|>"]);
  return [
    tag("<|channel|>", sequence([oneOf(channels.map((channel) => channel + recipient)), type, body])),
    tag(`${recipient}<|channel|>`, sequence([oneOf(channels), type, body])),
  ];
}

/** Calls of a custom tool: the body is its input. */
export function customCalls(to: string, body: Format): Format[] {
  const recipient = ` to=${to}`;
  const channels = ["commentary", "analysis"];
  return [
    tag("<|channel|>", sequence([oneOf(channels.map((channel) => `${channel}${recipient}<|message|>`)), body])),
    tag(`${recipient}<|channel|>`, sequence([oneOf(channels.map((channel) => `${channel}<|message|>`)), body])),
  ];
}

function oneOf(values: readonly string[]): Format {
  return { type: "or", elements: values.map(constant) };
}

function finalHeaders(): string[] {
  return ["<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>"];
}

/** Messages that are the answer, in a format. */
export function answers(format: Format): Format[] {
  return finalHeaders().map((begin) => tag(begin, format));
}

/**
 * The value of `structured_outputs` for vLLM whose output ends in one of `ends`, after thoughts and a preamble (`withPreamble`: an
 * answer in a format has none).
 */
export function structuralTag(ends: Format[], withPreamble: boolean): { structural_tag: string } {
  const format = withPreludes({ type: "or", elements: ends }, withPreamble);
  return { structural_tag: JSON.stringify({ type: "structural_tag", format }) };
}
