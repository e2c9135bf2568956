import {
  type CharSet,
  complement,
  type Expression,
  has,
  intersection,
  MAX_CODE_POINT,
  NOTHING,
  sizeOf,
} from "./expression.ts";
import type { Rules } from "./lark-rules.ts";

/**
 * Writes rules in the EBNF of llama.cpp (GBNF), which vLLM's `structured_outputs.grammar` and xgrammar's structural
 * tags accept: xgrammar reads it itself, llguidance translates it.
 */

export interface EbnfOptions {
  /** Names of rules have hyphens instead of underscores, which llama.cpp does not know. */
  hyphens?: boolean;
  /**
   * Texts that a run of characters must not contain. To xgrammar a special token is the text of its literal. Only for
   * xgrammar from 0.2 on, whose `TagDispatch` this uses.
   */
  excludes?: readonly string[];
}

/** The grammar as EBNF, a line for each rule; the first one is `root`. */
export function toEbnf({ start, rules }: Rules, { excludes = [], hyphens = false }: EbnfOptions = {}): string {
  const writer = new EbnfWriter(start, excludes, hyphens);
  const others = [...rules].filter(([name]) => name !== start);
  const first = rules.get(start) ?? NOTHING;
  const lines = [[start, first] as const, ...others].map(([name, rule]) => writer.rule(name, rule));
  return [...lines, ...writer.runs()].join("\n");
}

/** The maximum of characters that a run may exclude and still be written as all text except these. */
const FEW = 40;

class EbnfWriter {
  readonly #start: string;
  readonly #excludes: readonly string[];
  readonly #hyphens: boolean;
  /** Rules for runs of characters, by their definitions. */
  readonly #runs = new Map<string, string>();

  constructor(start: string, excludes: readonly string[], hyphens: boolean) {
    this.#start = start;
    this.#excludes = excludes;
    this.#hyphens = hyphens;
  }

  rule(name: string, expression: Expression): string {
    return `${this.#nameOf(name)} ::= ${this.write(expression)}`;
  }

  /** A rule's name: llguidance would take one called `start` for Lark. Names of Lark's have no hyphen, and letters of one case. */
  #nameOf(name: string): string {
    if (name === this.#start) return "root";
    if (name === "root") return "root-R";
    return this.#hyphens ? name.replaceAll("_", "-") : name;
  }

  /** The rules that what was written so far refers to. */
  runs(): string[] {
    return [...this.#runs].map(([run, name]) => `${name} ::= ${run}`);
  }

  write(expression: Expression): string {
    switch (expression.kind) {
      case "text":
        return quoted(expression.text);
      case "chars":
        return bracketed(expression.set);
      case "rule":
        return this.#nameOf(expression.name);
      case "sequence":
        return expression.parts.map((part) => (part.kind === "repeat" ? this.write(part) : this.#item(part))).join(" ");
      case "choice":
        return expression.options.map((option) => this.write(option)).join(" | ");
      case "repeat":
        return this.#run(expression) ?? this.#item(expression.part) + countOf(expression);
    }
  }

  /** An expression as one thing, in brackets where it needs them. */
  #item(expression: Expression): string {
    const text = this.write(expression);
    const isOne = ["text", "chars", "rule"].includes(expression.kind);
    return isOne ? text : `(${text})`;
  }

  /** A run of nearly any characters, without the excluded texts: where it could have them, and can be written so. */
  #run({ part, min, max }: Expression & { kind: "repeat" }): string | undefined {
    if (this.#excludes.length === 0 || min > 1 || max !== Number.POSITIVE_INFINITY || part.kind !== "chars") {
      return undefined;
    }
    const others = complement(part.set);
    const canHaveThem = this.#excludes.some((text) => [...text].every((character) => has(part.set, character)));
    if (!canHaveThem || sizeOf(others) > FEW) return undefined;
    const excluded = [...characters(others), ...this.#excludes].map(quoted);
    const run = `TagDispatch(loop_after_dispatch=false, excludes=(${excluded.join(", ")}))`;
    const name = this.#runs.get(run) ?? `run-${this.#runs.size + 1}`;
    this.#runs.set(run, name);
    if (min === 0) return name;
    // The first character may begin none of them: what begins with it would be judged without it.
    const firsts = [...new Set(this.#excludes.map((text) => text[0] ?? ""))];
    const seconds = [...new Set(this.#excludes.map((text) => text[1] ?? ""))];
    const unlike = (texts: readonly string[]) =>
      bracketed(complement([...others, ...texts.map(rangeOf)].sort(byFirst)));
    return `(${unlike(firsts)} ${name} | ${bracketed(firsts.map(rangeOf))}+ (${unlike([...firsts, ...seconds])} ${name})?)`;
  }
}

function byFirst(a: readonly [number, number], b: readonly [number, number]): number {
  return a[0] - b[0];
}

function rangeOf(character: string): readonly [number, number] {
  const code = character.codePointAt(0) ?? 0;
  return [code, code];
}

function countOf({ min, max }: { min: number; max: number }): string {
  if (max === Number.POSITIVE_INFINITY) return min === 0 ? "*" : min === 1 ? "+" : `{${min},}`;
  if (min === 0 && max === 1) return "?";
  return min === max ? `{${min}}` : `{${min},${max}}`;
}

function* characters(set: CharSet): Generator<string> {
  for (const [first, last] of set) for (let code = first; code <= last; code += 1) yield String.fromCodePoint(code);
}

function quoted(text: string): string {
  return `"${readable([...text].map((character) => escaped(character, '"\\')).join(""))}"`;
}

/** A class: of what it has, or, where it goes on to the last character, of what it has not. */
function bracketed(set: CharSet): string {
  const isNegated = set.at(-1)?.[1] === MAX_CODE_POINT;
  const listed = isNegated ? complement(set) : set;
  if (listed.length === 0) return "[^\\x00]";
  // `^` and `-` mean themselves at the end, and only there to every reader.
  const last = ["^", "-"].filter((character) => has(listed, character));
  const others = intersection(listed, NEITHER);
  const ranges = others.map(([first, end]) => {
    const [low, high] = [first, end].map((code) => escaped(String.fromCodePoint(code), "[]\\"));
    return first === end ? low : `${low}-${high}`;
  });
  return `[${isNegated ? "^" : ""}${readable(ranges.join("") + last.join(""))}]`;
}

const NEITHER = complement([
  [0x2d, 0x2d],
  [0x5e, 0x5e],
]);

const ESCAPES: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** A character in quotes or brackets; `special` are those that need a backslash there. */
function escaped(character: string, special: string): string {
  const known = ESCAPES[character];
  if (known !== undefined) return known;
  if (special.includes(character)) return `\\${character}`;
  const code = character.codePointAt(0) ?? 0;
  return code >= 0x20 && (code < 0x7f || code >= 0xa0) ? character : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** llguidance reads `\u00..` wrongly, and xgrammar reads `\x..` on for as long as there are digits. */
function readable(text: string): string {
  // A backslash that is itself escaped begins no escape.
  return text.replace(/\\\\|\\u00([\da-f]{2})(?![\dA-Fa-f])/g, (found, code) =>
    code === undefined ? found : `\\x${code}`,
  );
}
