import type { MarkedCall } from "./families.ts";

/** Calls as Python writes them: `[get_weather(city="Rome", days=3), get_time()]`, of Llama 3.2, Llama 4 and Olmo. */

const MAX_DEPTH = 64;

/** The calls of a list in Python's form; undefined if a text is anything else. */
export function pythonCalls(text: string): MarkedCall[] | undefined {
  const reader = new PythonReader(text);
  try {
    return reader.calls();
  } catch (error) {
    if (error instanceof NotPython) return undefined;
    throw error;
  }
}

class NotPython extends Error {}

const CONSTANTS: ReadonlyMap<string, unknown> = new Map<string, unknown>([
  ["True", true],
  ["False", false],
  ["None", null],
  ["true", true],
  ["false", false],
  ["null", null],
]);

const ESCAPES: Readonly<Record<string, string>> = { n: "\n", t: "\t", r: "\r" };

class PythonReader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  calls(): MarkedCall[] {
    const calls = this.#listed("[", "]", () => {
      const name = this.#match(/[\w.-]+/y);
      const values = this.#listed("(", ")", () => {
        const key = this.#match(/\w+/y);
        this.#take("=");
        return [key, this.#value(0)] as const;
      });
      return { name, arguments: JSON.stringify(Object.fromEntries(values)) };
    });
    if (this.#at < this.#text.length) throw new NotPython();
    return calls;
  }

  #value(depth: number): unknown {
    if (depth > MAX_DEPTH) throw new NotPython();
    const first = this.#text[this.#at];
    if (first === '"' || first === "'") return this.#string(first);
    if (first === "[") return this.#listed("[", "]", () => this.#value(depth + 1));
    if (first === "{") {
      const entries = this.#listed("{", "}", () => {
        const key = this.#value(depth + 1);
        this.#take(":");
        return [String(key), this.#value(depth + 1)] as const;
      });
      return Object.fromEntries(entries);
    }
    const word = this.#match(/[\w.+-]+/y);
    if (CONSTANTS.has(word)) return CONSTANTS.get(word);
    const number = Number(word);
    if (Number.isNaN(number)) throw new NotPython();
    return number;
  }

  #string(quote: string): string {
    let value = "";
    for (let at = this.#at + 1; at < this.#text.length; at += 1) {
      const character = this.#text[at] as string;
      if (character === quote) {
        this.#at = at + 1;
        this.#skip();
        return value;
      }
      if (character === "\\") {
        at += 1;
        const escaped = this.#text[at] ?? "";
        value += ESCAPES[escaped] ?? escaped;
      } else value += character;
    }
    throw new NotPython();
  }

  /** Elements between brackets, separated by commas. */
  #listed<Element>(open: string, close: string, element: () => Element): Element[] {
    this.#take(open);
    const elements: Element[] = [];
    while (this.#text[this.#at] !== close) {
      elements.push(element());
      if (this.#text[this.#at] !== close) this.#take(",");
    }
    this.#take(close);
    return elements;
  }

  #match(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found === undefined) throw new NotPython();
    this.#at += found.length;
    this.#skip();
    return found;
  }

  #take(character: string): void {
    if (this.#text[this.#at] !== character) throw new NotPython();
    this.#at += 1;
    this.#skip();
  }

  #skip(): void {
    while (/\s/.test(this.#text[this.#at] ?? "")) this.#at += 1;
  }
}
