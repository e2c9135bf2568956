/** A parser for exactly the Server-Sent Events that we write: a subset of the standard. */
import { isObject, show, throwIfAny } from "./violations.ts";

/** One event of the wire: its SSE name, and its data, which may not be a Responses event. */
export interface WireEvent {
  readonly name: string;
  readonly data: unknown;
}

export interface EventStream {
  readonly events: readonly WireEvent[];
  /** The texts of the comments (heartbeats). */
  readonly comments: readonly string[];
  /** True if the stream ended with `data: [DONE]`. */
  readonly done: boolean;
}

/**
 * Parses a whole SSE body: frames of one `event:` and one `data:` line with a JSON object, comments, and `[DONE]` last.
 *
 * @param options.partial the stream was cut off: a torn last frame is ignored, unless it comes after `[DONE]`
 * @throws {ConformanceError} when the framing is anything else
 */
export function parseEventStream(source: Uint8Array | string, options: { partial?: boolean } = {}): EventStream {
  const violations: string[] = [];
  const partial = options.partial ?? false;
  const { text, torn, problem } = decode(source, partial);
  if (problem !== undefined) violations.push(problem);
  if (text.includes("\r")) violations.push("contains a carriage return");
  if (text.startsWith("\uFEFF")) violations.push("begins with a byte order mark");

  const blocks = text.split("\n\n");
  const rest = (blocks.pop() ?? "") + torn;
  const events: WireEvent[] = [];
  const comments: string[] = [];
  let done = false;
  for (const block of blocks) {
    if (done) violations.push(`has a frame after [DONE]: ${show(block)}`);
    const lines = block.split("\n");
    comments.push(...lines.filter((line) => line.startsWith(":")).map((line) => line.slice(1).trim()));
    const fields = lines.filter((line) => !line.startsWith(":"));
    if (fields.length === 0) continue;
    if (fields.length === 1 && fields[0] === "data: [DONE]") {
      done = true;
      continue;
    }
    const [event = "", data = ""] = fields;
    if (fields.length !== 2 || !event.startsWith("event: ") || !data.startsWith("data: ")) {
      violations.push(`has a frame that is not an event line and a data line: ${show(block)}`);
      continue;
    }
    const value = parseJson(data.slice("data: ".length));
    if (isObject(value)) events.push({ name: event.slice("event: ".length), data: value });
    else violations.push(`has data that is not a JSON object: ${show(data)}`);
  }
  if (rest !== "" && (done || !partial)) violations.push(`ends inside a frame: ${show(rest)}`);
  throwIfAny(
    "The event stream",
    violations.map((message) => `#4 framing: the stream ${message}`),
  );
  return { events, comments, done };
}

/** `torn`: the replacement for the beginning of a character that was cut off. */
function decode(source: Uint8Array | string, partial: boolean): { text: string; torn: string; problem?: string } {
  if (typeof source === "string") return { text: source, torn: "" };
  try {
    const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    return { text: decoder.decode(source, { stream: partial }), torn: partial ? flush(decoder) : "" };
  } catch {
    return { text: new TextDecoder().decode(source), torn: "", problem: "is not UTF-8" };
  }
}

function flush(decoder: TextDecoder): string {
  try {
    return decoder.decode();
  } catch {
    return "\uFFFD";
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
