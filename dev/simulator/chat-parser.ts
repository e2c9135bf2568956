import { isObject, type Json, parseJson } from "./json.ts";
import { pythonJson } from "./python-text.ts";

/** A piece of a tool call: its name first, then its arguments. */
export type CallDelta = { index: number; name: string } | { index: number; arguments: string };

/** The fields that a piece of generated text adds to the message. A missing field adds nothing. */
export type MessageDelta = { reasoning?: string; content?: string; calls?: CallDelta[] };

/** A whole message. */
export type ParsedMessage = {
  reasoning: string | null;
  content: string | null;
  calls: { name: string; arguments: string }[];
};

/** Settings of the parsers for one text. */
export type ParserOptions = {
  /** True if the text begins in the model's reasoning. No `<think>` is then needed. */
  thinking: boolean;
  /** True if tool calls are parsed out of the text. Otherwise their syntax is content. */
  tools: boolean;
};

const THINK = "<think>";
const THINK_END = "</think>";
const CALL = "<tool_call>";
const CALL_END = "</tool_call>";
const LONGEST_MARK = CALL_END.length;

/** vLLM's `qwen3` reasoning parser and `hermes` tool parser on a stream. */
export class ChatParser {
  #state: "thinking" | "content" | "calls";
  #tools: boolean;
  #held = "";
  #call: CallReader | undefined;
  #calls = 0;

  constructor({ thinking, tools }: ParserOptions) {
    this.#state = thinking ? "thinking" : "content";
    this.#tools = tools;
  }

  /** True if the next text is reasoning. */
  get thinking(): boolean {
    return this.#state === "thinking";
  }

  /** Takes the next text. If `finished`, the end, no text is held back. */
  add(text: string, finished: boolean): MessageDelta {
    const delta: MessageDelta = {};
    let rest = this.#held + text;
    this.#held = "";
    if (this.#state === "thinking") rest = this.#think(rest, finished, delta);
    if (this.#state === "content") rest = this.#speak(rest, finished, delta);
    if (this.#state === "calls") this.#readCalls(rest, delta);
    return delta;
  }

  #think(text: string, finished: boolean, delta: MessageDelta): string {
    const { at, length } = endOfThoughts(text);
    const held = at >= 0 || finished ? 0 : overlap(text, [THINK, THINK_END, CALL]);
    const thought = text.slice(0, at >= 0 ? at : text.length - held).replaceAll(THINK, "");
    if (thought !== "") delta.reasoning = thought;
    if (at < 0) {
      this.#held = text.slice(text.length - held);
      return "";
    }
    this.#state = "content";
    return text.slice(at + length);
  }

  #speak(text: string, finished: boolean, delta: MessageDelta): string {
    const call = this.#tools ? text.indexOf(CALL) : -1;
    const held = call >= 0 || finished || !this.#tools ? 0 : overlap(text, [CALL]);
    const said = text.slice(0, call >= 0 ? call : text.length - held);
    if (said !== "") delta.content = said;
    if (call < 0) {
      this.#held = text.slice(text.length - held);
      return "";
    }
    this.#state = "calls";
    return text.slice(call);
  }

  /** Text that is outside of calls here is dropped, as hermes does. */
  #readCalls(text: string, delta: MessageDelta): void {
    for (let rest = text; ; ) {
      const mark = this.#call === undefined ? CALL : CALL_END;
      const at = rest.indexOf(mark);
      const here = rest.slice(0, at >= 0 ? at : rest.length - overlap(rest, [mark]));
      const pieces = this.#call?.add(here, this.#calls) ?? [];
      if (pieces.length > 0) delta.calls = [...(delta.calls ?? []), ...pieces];
      if (at < 0) {
        this.#held = rest.slice(here.length);
        return;
      }
      rest = rest.slice(at + mark.length);
      if (this.#call?.named === true) this.#calls++;
      this.#call = this.#call === undefined ? new CallReader() : undefined;
    }
  }
}

/**
 * Reads `{"name": …, "arguments": …}` while it arrives: the name once it is complete, then the arguments up to their
 * last bracket.
 */
class CallReader {
  named = false;
  #head: string | undefined = "";
  #space = "";
  #depth = 0;
  #inString = false;
  #escaped = false;
  #over = false;

  add(text: string, index: number): CallDelta[] {
    const pieces: CallDelta[] = [];
    let given = text;
    if (this.#head !== undefined) {
      this.#head += text;
      const name = this.named ? undefined : /"name"\s*:\s*"([^"]+)"/.exec(this.#head)?.[1];
      if (name !== undefined) {
        this.named = true;
        pieces.push({ index, name });
      }
      const from = this.named ? /"arguments"\s*:\s*/.exec(this.#head) : null;
      if (from === null) return pieces;
      given = this.#head.slice(from.index + from[0].length);
      this.#head = undefined;
    }
    const begun = this.#depth > 0 || this.#inString || this.#over;
    const piece = this.#space + given.slice(0, this.#end(given));
    const said = begun ? piece : piece.trimStart();
    const trimmed = said.trimEnd();
    this.#space = said.slice(trimmed.length);
    if (trimmed !== "") pieces.push({ index, arguments: trimmed });
    return pieces;
  }

  /** The end of the arguments in this text, or its length. */
  #end(text: string): number {
    for (let at = 0; at < text.length; at++) {
      if (this.#over) return at;
      const character = text[at];
      if (this.#escaped) this.#escaped = false;
      else if (this.#inString) {
        if (character === "\\") this.#escaped = true;
        else if (character === '"') this.#inString = false;
      } else if (character === '"') this.#inString = true;
      else if (character === "{" || character === "[") this.#depth++;
      else if (character === "}" || character === "]") {
        // The bracket that ends the whole call, if the arguments are not an object.
        if (this.#depth === 0) {
          this.#over = true;
          return at;
        }
        this.#depth--;
        this.#over = this.#depth === 0;
      }
    }
    return text.length;
  }
}

/**
 * vLLM's parsers on a whole text. Unlike the streaming parsers they do not know the prompt: a text without an end of
 * reasoning is all reasoning.
 */
export function parseMessage(text: string, { thinking, tools }: ParserOptions): ParsedMessage {
  let reasoning: string | null = null;
  let content: string | null = text;
  if (thinking) {
    const { at, length } = endOfThoughts(text);
    reasoning = (at < 0 ? text : text.slice(0, at)).replaceAll(THINK, "") || null;
    content = at < 0 ? null : text.slice(at + length);
  }
  if (!tools || content === null || !content.includes(CALL)) return { reasoning, content: content || null, calls: [] };
  const calls = [...content.matchAll(/<tool_call>(.*?)<\/tool_call>|<tool_call>(.*)/gs)].map((match) =>
    readCall(match[1] ?? match[2] ?? ""),
  );
  // If one call is invalid, the whole text is content.
  if (calls.includes(undefined)) return { reasoning, content, calls: [] };
  const said = content.slice(0, content.indexOf(CALL));
  return { reasoning, content: said.trim() === "" ? null : said, calls: calls.filter((call) => call !== undefined) };
}

function readCall(text: string): { name: string; arguments: string } | undefined {
  const call = tryJson(text);
  if (!isObject(call) || typeof call.name !== "string" || call.arguments === undefined) return undefined;
  return { name: call.name, arguments: pythonJson(call.arguments) };
}

/** A call also ends the reasoning, and is parsed. */
function endOfThoughts(text: string): { at: number; length: number } {
  const end = text.indexOf(THINK_END);
  const call = text.indexOf(CALL);
  return end >= 0 && (call < 0 || end < call) ? { at: end, length: THINK_END.length } : { at: call, length: 0 };
}

function tryJson(text: string): Json | undefined {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

/** The number of characters at the end of the text that may begin one of the marks. */
function overlap(text: string, marks: readonly string[]): number {
  let most = 0;
  if (!text.includes("<", text.length - LONGEST_MARK)) return most;
  for (const mark of marks) {
    for (let length = Math.min(mark.length - 1, text.length); length > most; length--) {
      if (text.endsWith(mark.slice(0, length))) most = length;
    }
  }
  return most;
}
