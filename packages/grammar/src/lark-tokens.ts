import { GrammarFault } from "./faults.ts";

/** Lark's lexical rules (lark/load_grammar.py, `TERMINALS`). */

export type LarkToken = { at: number } & (
  | { kind: "rule" | "terminal" | "number" | "directive"; text: string }
  | { kind: "string"; text: string; ignoresCase: boolean }
  | { kind: "regex"; text: string; flags: string }
  /** The ends of lines, with the blank ones after them. */
  | { kind: "newline" }
  | { kind: "symbol"; text: string }
  | { kind: "end" }
);

const BLANK = /(?:[ \t\f]|\\[ \t]*\r?\n)+/y;
const COMMENT = /(?:\/\/|#)[^\n]*/y;
const NEWLINES = /\r?\n/y;
const NAME = /_?[a-z][_a-z0-9]*|_?[A-Z][_A-Z0-9]*/y;
const NUMBER = /[+-]?\d+/y;
const DIRECTIVE = /%[a-z]+/y;
const SYMBOL = /->|\.\.|[:|()[\]{},.*+?~!]/y;
const REGEX_FLAGS = /[imslux]*/y;

/** Splits a grammar into tokens, the last of which is its end. Throws {@link GrammarFault}. Linear in its length. */
export function tokenize(source: string): LarkToken[] {
  const tokens: LarkToken[] = [];
  let at = 0;
  const match = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at;
    const found = pattern.exec(source)?.[0];
    if (found !== undefined) at += found.length;
    return found;
  };
  while (at < source.length) {
    if (match(BLANK) !== undefined || match(COMMENT) !== undefined) continue;
    const begin = at;
    if (match(NEWLINES) !== undefined) {
      if (tokens.at(-1)?.kind !== "newline") tokens.push({ kind: "newline", at: begin });
      continue;
    }
    const name = match(NAME);
    if (name !== undefined) {
      tokens.push({ kind: /[a-z]/.test(name) ? "rule" : "terminal", text: name, at: begin });
      continue;
    }
    const directive = match(DIRECTIVE);
    if (directive !== undefined) {
      tokens.push({ kind: "directive", text: directive, at: begin });
      continue;
    }
    if (source[at] === '"' || source[at] === "/") {
      const quote = source[at] ?? "";
      const end = closing(source, at, quote);
      const text = source.slice(at + 1, end);
      at = end + 1;
      if (quote === '"') {
        const ignoresCase = source[at] === "i";
        if (ignoresCase) at += 1;
        tokens.push({ kind: "string", text: unescaped(text, begin + 1), ignoresCase, at: begin });
      } else {
        const flags = match(REGEX_FLAGS) ?? "";
        if (text.includes("\n") && !flags.includes("x"))
          throw new GrammarFault("unterminated regular expression", begin);
        tokens.push({ kind: "regex", text, flags, at: begin });
      }
      continue;
    }
    const number = match(NUMBER);
    if (number !== undefined) {
      tokens.push({ kind: "number", text: number, at: begin });
      continue;
    }
    const symbol = match(SYMBOL);
    if (symbol === undefined) throw new GrammarFault("unexpected character", begin);
    tokens.push({ kind: "symbol", text: symbol, at: begin });
  }
  tokens.push({ kind: "newline", at }, { kind: "end", at });
  return tokens;
}

/** The position of the quote that ends the text at `at`. */
function closing(source: string, at: number, quote: string): number {
  for (let end = at + 1; end < source.length; end += 1) {
    if (source[end] === "\\") end += 1;
    else if (source[end] === quote) return end;
    else if (source[end] === "\n" && quote === '"') break;
  }
  throw new GrammarFault(quote === '"' ? "unterminated string" : "unterminated regular expression", at);
}

const ESCAPES: Record<string, string> = {
  '"': '"',
  "\\": "\\",
  "/": "/",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
};

const ESCAPE = /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([\s\S]))/g;

/** The text of a string. An unknown escape is a backslash and the next character, as in Lark. */
function unescaped(text: string, at: number): string {
  return text.replace(ESCAPE, (whole, x?: string, u?: string, long?: string, other?: string, offset?: number) => {
    const digits = x ?? u ?? long;
    if (digits === undefined) {
      const known = other !== undefined && Object.hasOwn(ESCAPES, other) ? ESCAPES[other] : undefined;
      if (known === undefined && /[xuU]/.test(other ?? "")) {
        throw new GrammarFault("an escape without the number of a character", at + (offset ?? 0));
      }
      return known ?? whole;
    }
    const code = Number.parseInt(digits, 16);
    if (code > 0x10ffff) throw new GrammarFault("an escape without the number of a character", at + (offset ?? 0));
    return String.fromCodePoint(code);
  });
}
