import { isJsonObject, type JsonObject } from "@responses-edge/responses-api/json";
import { type PassedReader, passedBytes } from "./passed-bytes.ts";

/** Reads the text of an answer of vLLM's own endpoints while its bytes pass to the client. */

/** A longer line of a stream is left out. UTF-16 units. */
const MAX_LINE_LENGTH = 65_536;

/** Fields of a delta that name something. The texts of all others are pieces. */
const LABELS = new Set(["id", "name", "role", "type"]);

export interface PassedAnswerText {
  /** An answer that is JSON, a text, or the joined deltas of a stream. */
  output: unknown;
  isCut: boolean;
  /** The answer has ended well. */
  isWhole: boolean;
}

interface TextReader extends PassedReader {
  text(): Omit<PassedAnswerText, "isWhole">;
}

/**
 * Gives the body unchanged, and reads its text on the way: at most about `maxLength` characters. `onEnd` is called once,
 * when the body has ended.
 */
export function bodyReadForText(
  body: ReadableStream<Uint8Array>,
  type: string,
  maxLength: number,
  onEnd: (answer: PassedAnswerText) => void,
): ReadableStream<Uint8Array> {
  const reader: TextReader = type.startsWith("text/event-stream")
    ? new EventReader(maxLength)
    : new BodyReader(maxLength);
  return passedBytes(body, reader, (isWhole) => onEnd({ ...reader.text(), isWhole }));
}

class BodyReader implements TextReader {
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

  text() {
    const text = this.#text.slice(0, this.#maxLength);
    return { output: jsonIn(text) ?? text, isCut: this.#isCut };
  }
}

class EventReader implements TextReader {
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
    for (const line of lines) if (line.startsWith("data:")) this.#readEvent(jsonIn(line.slice("data:".length)));
    return [bytes];
  }

  end(): readonly Uint8Array[] {
    return [];
  }

  text() {
    return { output: this.#output, isCut: this.#left <= 0 };
  }

  /** OpenAI's chunks have deltas, or texts, in `choices`; Anthropic's events one for each block of the content. */
  #readEvent(event: unknown): void {
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
