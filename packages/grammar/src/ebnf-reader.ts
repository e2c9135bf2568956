import { charSet, chars, complement, type Expression, NOTHING, repeat, sequence } from "./expression.ts";
import type { Rules } from "./lark-rules.ts";

/** The maximum of nested brackets: the reader is recursive. */
const MAX_NESTING = 64;

/** The maximum of characters that a `TagDispatch` excludes: each becomes a choice within the one before. */
const MAX_EXCLUDED = 1_024;

/**
 * Reads EBNF: llama.cpp's GBNF, and xgrammar's as far as vLLM's clients write it. `undefined` for an invalid grammar,
 * and for one with constructs beyond these. Linear in its length.
 */
export function parseEbnf(source: string): Rules | undefined {
  const reader = new EbnfReader(source);
  const rules = reader.grammar();
  if (rules === undefined || !rules.has("root")) return undefined;
  return reader.used.every((name) => rules.has(name)) ? { start: "root", rules } : undefined;
}

class Mistake extends Error {}

class EbnfReader {
  readonly used: string[] = [];
  readonly #source: string;
  #at = 0;
  #depth = 0;

  constructor(source: string) {
    this.#source = source;
  }

  grammar(): Map<string, Expression> | undefined {
    const rules = new Map<string, Expression>();
    try {
      for (this.#space(); this.#at < this.#source.length; ) {
        const name = this.#need(/([A-Za-z_][\w.-]*)[ \t]*::=/y);
        if (rules.has(name)) throw new Mistake();
        rules.set(name, this.#choice());
      }
    } catch (error) {
      if (error instanceof Mistake) return undefined;
      throw error;
    }
    return rules;
  }

  #choice(): Expression {
    const options = [this.#sequence()];
    while (this.#take(/\|/y) !== undefined) options.push(this.#sequence());
    return options.length === 1 && options[0] !== undefined ? options[0] : { kind: "choice", options };
  }

  #sequence(): Expression {
    const parts: Expression[] = [];
    for (let part = this.#element(); part !== undefined; part = this.#element()) parts.push(this.#counted(part));
    if (parts.length === 0) throw new Mistake();
    return sequence(parts);
  }

  #counted(part: Expression): Expression {
    const sign = this.#take(/[*+?]/y);
    if (sign !== undefined) return repeat(part, sign === "+" ? 1 : 0, sign === "?" ? 1 : Number.POSITIVE_INFINITY);
    const count = this.#take(/\{(\d+(?:,\d*)?)\}/y);
    if (count === undefined) return part;
    const [min = "0", max] = count.split(",");
    const most = max === undefined ? Number(min) : max === "" ? Number.POSITIVE_INFINITY : Number(max);
    return repeat(part, Number(min), most);
  }

  #element(): Expression | undefined {
    const text = this.#take(/"((?:[^"\\\n]|\\[^\n])*)"/y);
    if (text !== undefined) return { kind: "text", text: unescaped(text) };
    const members = this.#take(/\[((?:[^\]\\\n]|\\[^\n])*)\]/y);
    if (members !== undefined) return classOf(members);
    if (this.#take(/\(/y) !== undefined) {
      if (this.#take(/\)/y) !== undefined) return { kind: "text", text: "" };
      this.#depth += 1;
      if (this.#depth > MAX_NESTING) throw new Mistake();
      const inner = this.#choice();
      this.#depth -= 1;
      this.#need(/(\))/y);
      return inner;
    }
    if (this.#take(/\./y) !== undefined) return chars(complement([]));
    const dispatch = this.#take(
      /TagDispatch\(loop_after_dispatch=(?:true|false),\s*excludes=\(((?:"(?:[^"\\\n]|\\[^\n])*"(?:,\s*)?)*)\)\)/y,
    );
    if (dispatch !== undefined) {
      if (dispatch.length > MAX_EXCLUDED) throw new Mistake();
      return without([...dispatch.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map((match) => unescaped(match[1] ?? "")));
    }
    // The name of the next rule does not belong to this rule.
    const name = this.#take(/([A-Za-z_][\w.-]*)(?![\w.-]|[ \t]*::=)/y);
    if (name === undefined) return undefined;
    this.used.push(name);
    return { kind: "rule", name };
  }

  #need(pattern: RegExp): string {
    const found = this.#take(pattern);
    if (found === undefined) throw new Mistake();
    return found;
  }

  /** The text that a pattern matches here, or its first group, with the space after it. */
  #take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#source);
    if (match === null) return undefined;
    this.#at += match[0].length;
    this.#space();
    return match[1] ?? match[0];
  }

  #space(): void {
    const blank = /(?:\s|#[^\n]*)*/y;
    blank.lastIndex = this.#at;
    this.#at += blank.exec(this.#source)?.[0].length ?? 0;
  }
}

const CONTROLS: Record<string, string> = {
  n: "\n",
  r: "\r",
  t: "\t",
  b: "\b",
  f: "\f",
  a: "\x07",
  v: "\v",
  "0": "\0",
  e: "\x1b",
};
const CHARACTER = /\\x([\da-fA-F]+)|\\u([\da-fA-F]{4})|\\U([\da-fA-F]{8})|\\([\s\S])|([^\\])/guy;

/** The characters of a literal or a class, each with a flag: true if it was written with a backslash. */
function* characters(text: string): Generator<{ character: string; escaped: boolean }> {
  for (const [, x, u, long, letter, plain] of text.matchAll(CHARACTER)) {
    const digits = x ?? u ?? long;
    if (plain !== undefined) yield { character: plain, escaped: false };
    else if (digits === undefined) yield { character: CONTROLS[letter ?? ""] ?? letter ?? "", escaped: true };
    else if (Number.parseInt(digits, 16) > 0x10ffff) throw new Mistake();
    else yield { character: String.fromCodePoint(Number.parseInt(digits, 16)), escaped: true };
  }
}

function unescaped(text: string): string {
  return [...characters(text)].map(({ character }) => character).join("");
}

function classOf(text: string): Expression {
  const negated = text.startsWith("^");
  const members = [...characters(negated ? text.slice(1) : text)];
  const ranges: [number, number][] = [];
  for (let index = 0; index < members.length; index++) {
    const [first, dash, last] = members.slice(index, index + 3);
    const low = first?.character.codePointAt(0) ?? 0;
    const isRange = dash?.character === "-" && !dash.escaped && last !== undefined;
    const high = isRange ? (last.character.codePointAt(0) ?? 0) : low;
    if (low > high) throw new Mistake();
    ranges.push([low, high]);
    if (isRange) index += 2;
  }
  const set = charSet(ranges);
  return chars(negated ? complement(set) : set);
}

/** Any text that has none of these. The first character of each is nowhere else in it. */
function without(texts: readonly string[]): Expression {
  const single = texts.filter((text) => text.length === 1);
  const begun = Map.groupBy(
    texts.filter((text) => text.length > 1),
    ([first]) => first ?? "",
  );
  const other = (...excluded: string[]) => {
    const codes = [...single, ...begun.keys(), ...excluded].map((character) => character.codePointAt(0) ?? 0);
    return chars(complement(charSet(codes.map((code) => [code, code]))));
  };
  const run = repeat(other(), 0, Number.POSITIVE_INFINITY);
  /** The text after a beginning, up to the next one: it does not begin with one of these ends. */
  const after = (ends: readonly string[]): Expression => {
    const byNext = Map.groupBy(ends, ([next]) => next ?? "");
    const options = [NOTHING, sequence([other(...byNext.keys()), run])];
    for (const [text, those] of byNext) {
      const longer = those.map((end) => end.slice(1));
      if (!longer.includes("")) options.push(sequence([{ kind: "text", text }, after(longer)]));
    }
    return { kind: "choice", options };
  };
  const options = [...begun].map(([text, those]) =>
    sequence([{ kind: "text", text }, after(those.map((each) => each.slice(1)))]),
  );
  if (options.length === 0) return run;
  const begunOnes = repeat({ kind: "choice", options }, 1, Number.POSITIVE_INFINITY);
  return sequence([run, { kind: "choice", options: [NOTHING, begunOnes] }]);
}
