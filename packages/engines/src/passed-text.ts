import { isJsonObject, type JsonObject } from "@responses-edge/responses-api/json";
import { type PassedReader, passedBytes } from "./passed-bytes.ts";

/** The text of an answer of vLLM's own endpoints, heard while the bytes pass. */

/** A longer line of a stream is left out. UTF-16 units. */
const MAX_LINE_LENGTH = 65_536;

/** Fields of a delta that name something. The texts of all others are pieces. */
const LABELS = new Set(["id", "name", "role", "type"]);

export interface HeardAnswer {
  /** An answer that is JSON, a text, or the joined deltas of a stream. */
  output: unknown;
  isCut: boolean;
  /** The answer has ended well. */
  isWhole: boolean;
}

interface Listener extends PassedReader {
  heard(): Omit<HeardAnswer, "isWhole">;
}

/** The body, of which at most about `maxLength` characters of text are heard. `onEnd` is called once, at its end. */
export function heardBody(
  body: ReadableStream<Uint8Array>,
  type: string,
  maxLength: number,
  onEnd: (answer: HeardAnswer) => void,
): ReadableStream<Uint8Array> {
  const listener: Listener = type.startsWith("text/event-stream")
    ? new EventListener(maxLength)
    : new BodyListener(maxLength);
  return passedBytes(body, listener, (isWhole) => onEnd({ ...listener.heard(), isWhole }));
}

class BodyListener implements Listener {
  readonly #decoder = new TextDecoder();
  readonly #maxLength: number;
  #text = "";
  #isCut = false;

  constructor(maxLength: number) {
    this.#maxLength = maxLength;
  }

  push(bytes: Uint8Array): readonly Uint8Array[] {
    if (this.#isCut) return [bytes];
    this.#text += this.#decoder.decode(bytes, { stream: true });
    this.#isCut = this.#text.length > this.#maxLength;
    return [bytes];
  }

  end(): readonly Uint8Array[] {
    return [];
  }

  heard() {
    const text = this.#text.slice(0, this.#maxLength);
    return { output: jsonIn(text) ?? text, isCut: this.#isCut };
  }
}

class EventListener implements Listener {
  readonly #decoder = new TextDecoder();
  readonly #output = newObject();
  #line = "";
  #left: number;

  constructor(maxLength: number) {
    this.#left = maxLength;
  }

  push(bytes: Uint8Array): readonly Uint8Array[] {
    if (this.#left <= 0) return [bytes];
    const lines = (this.#line + this.#decoder.decode(bytes, { stream: true })).split("\n");
    this.#line = lines.pop()?.slice(0, MAX_LINE_LENGTH) ?? "";
    for (const line of lines) if (line.startsWith("data:")) this.#hear(jsonIn(line.slice("data:".length)));
    return [bytes];
  }

  end(): readonly Uint8Array[] {
    return [];
  }

  heard() {
    return { output: this.#output, isCut: this.#left <= 0 };
  }

  /** OpenAI's chunks have deltas, or texts, in `choices`; Anthropic's events one for each block of the content. */
  #hear(event: unknown): void {
    if (!isJsonObject(event)) return;
    const { choices, delta, content_block: block, index } = event;
    const inBlock = isJsonObject(delta) ? delta : block;
    if (isJsonObject(inBlock)) this.#add(this.#output, { content: [{ index, ...inBlock }] });
    if (!Array.isArray(choices)) return;
    const deltas = choices.filter(isJsonObject).map((choice) => {
      const { delta: said = { text: choice.text }, index: at } = choice;
      return { index: at, ...(isJsonObject(said) && said) };
    });
    this.#add(this.#output, { choices: deltas });
  }

  #add(into: JsonObject, part: JsonObject): void {
    for (const [name, value] of Object.entries(part)) {
      const before = into[name];
      if (typeof value === "string") {
        this.#left -= value.length;
        into[name] = typeof before === "string" && !LABELS.has(name) ? before + value : value;
      } else if (Array.isArray(value)) {
        const list = isJsonObject(before) ? before : newObject();
        into[name] = list;
        for (const [at, entry] of value.filter(isJsonObject).entries())
          this.#add(list, { [String(entry.index ?? at)]: entry });
      } else if (isJsonObject(value)) {
        const inner = isJsonObject(before) ? before : newObject();
        into[name] = inner;
        this.#add(inner, value);
      }
    }
  }
}

/** An object whose every name is its own. */
function newObject(): JsonObject {
  return Object.create(null) as JsonObject;
}

/** Undefined for a text that is no JSON. */
function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
