import type { JsonObject } from "./json.ts";

/** A word in capitals is an abbreviation, such as JSON. */
const WORD = "\\p{Lu}['’]?\\p{Ll}[\\p{L}'’]*";
const NAME = `${WORD}(?:[ -]${WORD})*`;

/** A name after a preposition. */
const PLACE = new RegExp(`(?<=\\b(?:in|at|for|from|to|of) )${NAME}`, "gu");

/** Any name but the first word of a sentence. */
const ANY = new RegExp(`(?<![.!?]\\s|^|\\p{L})${NAME}`, "gu");

const NUMBER = /(?<![\w.,-])-?\d+(?:\.\d+)?(?![\w,])/g;

/** The names of properties that are searched for. */
const QUESTION = /^(?:search_?)?(?:query|queries|question|topic)$/i;

/** The names of properties that name a place or a person. */
const NAMED = /^(?:city|town|place|location|country|region|origin|destination|from|to|name|person)$|_(?:city|name)$/i;

/**
 * The values in a user's text that fit the arguments of a call: `{"city": "Paris"}` for a question that names Paris.
 * Each name and number is used once, in the order of the text. Without such a value an argument is filled from its
 * schema alone.
 */
export class Hints {
  readonly #words: ReadonlySet<string>;
  /** The text without the sentences that name the tool: they only ask for its call. */
  readonly #question: string;
  readonly #names: string[];
  readonly #numbers: number[];

  constructor(text: string, tool: string) {
    const sentences = text.split(/(?<=[.!?])\s+/);
    this.#question = sentences.filter((sentence) => !sentence.includes(tool)).join(" ");
    this.#words = new Set(text.toLowerCase().match(/[\p{L}\d]+/gu));
    const places = [...text.matchAll(PLACE)];
    this.#names = (places.length > 0 ? places : [...text.matchAll(ANY)]).map(([name]) => name);
    this.#numbers = [...this.#question.matchAll(NUMBER)].map(Number);
  }

  /** The text of a property with this name. */
  text(name: string): string | undefined {
    if (QUESTION.test(name)) return this.#question || undefined;
    return NAMED.test(name) ? this.#names.shift() : undefined;
  }

  /** The number of a property with this schema. */
  number({ type, minimum, maximum, multipleOf, exclusiveMinimum, exclusiveMaximum }: JsonObject): number | undefined {
    const isBound = multipleOf !== undefined || exclusiveMinimum !== undefined || exclusiveMaximum !== undefined;
    if (isBound) return undefined;
    const at = this.#numbers.findIndex(
      (value) =>
        (type !== "integer" || Number.isInteger(value)) &&
        !(typeof minimum === "number" && value < minimum) &&
        !(typeof maximum === "number" && value > maximum),
    );
    return at < 0 ? undefined : this.#numbers.splice(at, 1)[0];
  }

  /** The first of several choices that the text names. */
  choice<T>(choices: readonly T[]): T | undefined {
    return choices.find((choice) => typeof choice === "string" && this.#words.has(choice.toLowerCase()));
  }
}
