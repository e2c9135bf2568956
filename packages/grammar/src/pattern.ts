import {
  type CharSet,
  charSet,
  complement,
  type Expression,
  intersection,
  MAX_CODE_POINT,
  NOTHING,
} from "./expression.ts";
import type { Rules } from "./lark-rules.ts";

/**
 * Writes rules as the `pattern` of a string in a JSON schema, in the constructs that all readers share: characters,
 * classes, groups and counts. xgrammar applies a pattern to the string as JSON writes it, llguidance to its value. So
 * the pattern has only characters that are the same in both: `"`, `\` and control characters are left out of classes,
 * and options that need them are left out of choices.
 */

/** The maximum of characters of a pattern, and of its parts: rules are written out at each use. */
const LONGEST = 4_096;

/** The maximum of nested rules. */
const DEEPEST = 64;

/** The characters that JSON escapes. */
const ESCAPED = charSet([
  [0x00, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
]);
const PLAIN = complement(ESCAPED);

/** The pattern, or undefined without one: for rules that use themselves, or a text that JSON must escape. */
export function toPattern({ start, rules }: Rules): string | undefined {
  const pattern = new Expansion(rules).pattern(start);
  return pattern === undefined ? undefined : `^(?:${pattern})$`;
}

class TooLong extends Error {}

class Expansion {
  readonly #rules: Rules["rules"];
  readonly #open = new Set<string>();
  #steps = 0;

  constructor(rules: Rules["rules"]) {
    this.#rules = rules;
  }

  pattern(start: string): string | undefined {
    try {
      return this.#write({ kind: "rule", name: start });
    } catch (error) {
      if (error instanceof TooLong) return undefined;
      throw error;
    }
  }

  /** The expression as a pattern; undefined for one that matches nothing without characters that JSON escapes. */
  #write(expression: Expression): string | undefined {
    this.#work(1);
    switch (expression.kind) {
      case "text":
        return [...expression.text].some((character) => intersection(rangeOf(character), PLAIN).length === 0)
          ? undefined
          : this.#counted([...expression.text].map(escaped).join(""));
      case "chars": {
        const set = intersection(expression.set, PLAIN);
        return set.length === 0 ? undefined : this.#counted(bracketed(set));
      }
      case "rule":
        return this.#rule(expression.name);
      case "sequence": {
        const parts = expression.parts.map((part) => this.#write(part));
        return parts.includes(undefined) ? undefined : parts.join("");
      }
      case "choice": {
        const options = expression.options
          .map((option) => this.#write(option))
          .filter((option) => option !== undefined);
        return options.length === 0 ? undefined : `(?:${options.join("|")})`;
      }
      case "repeat": {
        const { part, min, max } = expression;
        const text = this.#write(part);
        if (text === undefined) return min === 0 ? this.#write(NOTHING) : undefined;
        return this.#counted((part.kind === "chars" ? text : `(?:${text})`) + countOf(min, max));
      }
    }
  }

  #rule(name: string): string | undefined {
    const rule = this.#rules.get(name);
    if (!rule || this.#open.has(name) || this.#open.size === DEEPEST) throw new TooLong();
    this.#open.add(name);
    const text = this.#write(rule);
    this.#open.delete(name);
    return text;
  }

  #counted(text: string): string {
    this.#work(text.length);
    return text;
  }

  #work(steps: number): void {
    this.#steps += steps;
    if (this.#steps > LONGEST) throw new TooLong();
  }
}

function countOf(min: number, max: number): string {
  if (max === Number.POSITIVE_INFINITY) return min === 0 ? "*" : min === 1 ? "+" : `{${min},}`;
  if (min === 0 && max === 1) return "?";
  return min === max ? `{${min}}` : `{${min},${max}}`;
}

function rangeOf(character: string): CharSet {
  const code = character.codePointAt(0) ?? 0;
  return [[code, code]];
}

function bracketed(set: CharSet): string {
  const isNegated = set.at(-1)?.[1] === MAX_CODE_POINT;
  const listed = isNegated ? complement(set) : set;
  const ranges = listed.map(([first, last]) =>
    first === last ? inClass(first) : `${inClass(first)}-${inClass(last)}`,
  );
  return `[${isNegated ? "^" : ""}${ranges.join("")}]`;
}

function inClass(code: number): string {
  if (code < 0x20 || code === 0x7f) return `\\x${code.toString(16).padStart(2, "0")}`;
  const character = String.fromCodePoint(code);
  return "\\^-[]".includes(character) ? `\\${character}` : character;
}

function escaped(character: string): string {
  return "^$.*+?()[]{}|/\\".includes(character) ? `\\${character}` : character;
}
