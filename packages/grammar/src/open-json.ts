import { RemainderFault } from "./faults.ts";

/** The beginning of a JSON text: the containers that are open at its end, one in another. */
export type OpenJson =
  /** No character of the value has come. */
  | { kind: "nothing" }
  /** A string without its last quote, or a number or a keyword that may go on. `raw` is all of it. */
  | { kind: "scalar"; raw: string }
  | { kind: "value"; value: unknown }
  | OpenObject
  | OpenArray;

export interface OpenObject {
  kind: "object";
  /** Complete members, in their order. */
  members: readonly (readonly [key: string, value: unknown])[];
  at: Place;
  /** The key so far without its last quote (`key`), or the whole one (`colon`, `value`). */
  key: string;
  /** The value after the colon. */
  child: OpenJson;
}

export interface OpenArray {
  kind: "array";
  items: readonly unknown[];
  at: Exclude<Place, "key" | "colon">;
  child: OpenJson;
}

/**
 * The position within a container: after its bracket, in a key, before a colon, in a value, after a value, after a
 * comma.
 */
type Place = "first" | "key" | "colon" | "value" | "after" | "comma";

/** The maximum of open containers. */
const MAX_NESTING = 256;

interface Frame {
  kind: "object" | "array";
  at: Place;
  key: string;
  /** Keys, and the positions of their values. */
  parts: { key: string; from: number; to: number }[];
  /** The position of the value that has begun. */
  from: number;
}

const NUMBER_OR_WORD = /[^\s{}[\],:"]+/y;
const SPACE = /[ \t\n\r]+/y;
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/**
 * Reads the beginning of a JSON text, once over it. `endsInSpace`: white space is its last character, outside of a
 * string. Throws {@link RemainderFault}: `no_prefix` if no JSON text begins so, `too_large` if more than 256 containers
 * are open.
 */
export function readOpenJson(text: string): { open: OpenJson; endsInSpace: boolean } {
  return new Reader(text).read();
}

class Reader {
  readonly #text: string;
  readonly #frames: Frame[] = [];
  /** The complete value of the text, or the scalar at its end. */
  #last: OpenJson = { kind: "nothing" };
  #isDone = false;

  constructor(text: string) {
    this.#text = text;
  }

  read(): { open: OpenJson; endsInSpace: boolean } {
    const text = this.#text;
    let endsInSpace = false;
    for (let at = 0; at < text.length; ) {
      const space = endOf(SPACE, text, at);
      endsInSpace = space > at;
      at = space > at ? space : this.#token(at);
    }
    return { open: this.#opened(), endsInSpace };
  }

  /** Reads one token; gives the position after it. */
  #token(at: number): number {
    const text = this.#text;
    const character = text[at] ?? "";
    const frame = this.#frames.at(-1);
    if (character === "{" || character === "[") {
      this.#beginValue(at);
      if (this.#frames.length === MAX_NESTING) throw new RemainderFault("too_large");
      this.#frames.push({ kind: character === "{" ? "object" : "array", at: "first", key: "", parts: [], from: 0 });
      return at + 1;
    }
    if (character === "}" || character === "]") {
      const isRight = frame?.kind === (character === "}" ? "object" : "array");
      if (!isRight || (frame.at !== "first" && frame.at !== "after")) throw new RemainderFault("no_prefix");
      this.#frames.pop();
      this.#endValue(at + 1);
      return at + 1;
    }
    if (character === ",") {
      if (frame?.at !== "after") throw new RemainderFault("no_prefix");
      frame.at = "comma";
      return at + 1;
    }
    if (character === ":") {
      if (frame?.at !== "colon") throw new RemainderFault("no_prefix");
      frame.at = "value";
      frame.from = -1;
      return at + 1;
    }
    if (character === '"') return this.#string(at);
    const end = endOf(NUMBER_OR_WORD, text, at);
    if (end === at) throw new RemainderFault("no_prefix");
    this.#beginValue(at);
    if (end === text.length) this.#last = { kind: "scalar", raw: text.slice(at) };
    else {
      const raw = text.slice(at, end);
      if (!NUMBER.test(raw) && !["true", "false", "null"].includes(raw)) throw new RemainderFault("no_prefix");
      this.#endValue(end);
    }
    return end;
  }

  #string(at: number): number {
    const text = this.#text;
    const frame = this.#frames.at(-1);
    const end = stringEnd(text, at + 1);
    const isKey = frame?.kind === "object" && (frame.at === "first" || frame.at === "comma");
    if (isKey) {
      frame.at = end === undefined ? "key" : "colon";
      frame.key = end === undefined ? text.slice(at) : keyOf(text.slice(at, end));
    } else {
      this.#beginValue(at);
      if (end === undefined) this.#last = { kind: "scalar", raw: text.slice(at) };
      else this.#endValue(end);
    }
    return end ?? text.length;
  }

  #beginValue(at: number): void {
    const frame = this.#frames.at(-1);
    if (!frame) {
      if (this.#isDone) throw new RemainderFault("no_prefix");
      this.#isDone = true;
      return;
    }
    const isPlace =
      frame.kind === "object"
        ? frame.at === "value" && frame.from === -1
        : frame.at === "first" || frame.at === "comma";
    if (!isPlace) throw new RemainderFault("no_prefix");
    frame.at = "value";
    frame.from = at;
  }

  #endValue(end: number): void {
    const frame = this.#frames.at(-1);
    if (frame) {
      frame.parts.push({ key: frame.key, from: frame.from, to: end });
      frame.at = "after";
    } else this.#last = { kind: "value", value: parsed(this.#text.slice(0, end)) };
  }

  /** The open containers, with the complete values in them. */
  #opened(): OpenJson {
    let child = this.#last;
    for (const { kind, at, key, parts } of this.#frames.toReversed()) {
      const values = parts.map(({ key, from, to }) => [key, parsed(this.#text.slice(from, to))] as const);
      if (kind === "object") child = { kind, members: values, at, key, child };
      else if (at === "key" || at === "colon") throw new RemainderFault("no_prefix");
      else child = { kind, items: values.map(([, value]) => value), at, child };
    }
    return child;
  }
}

function endOf(expression: RegExp, text: string, at: number): number {
  expression.lastIndex = at;
  return expression.test(text) ? expression.lastIndex : at;
}

/** The position after the quote that ends a string; undefined if it is missing. */
function stringEnd(text: string, start: number): number | undefined {
  for (let at = start; at < text.length; at += 1) {
    const character = text[at];
    if (character === "\\") at += 1;
    else if (character === '"') return at + 1;
  }
  return undefined;
}

function keyOf(raw: string): string {
  const key = parsed(raw);
  if (typeof key !== "string") throw new RemainderFault("no_prefix");
  return key;
}

function parsed(raw: string): unknown {
  try {
    return JSON.parse(raw);
  } catch {
    throw new RemainderFault("no_prefix");
  }
}
