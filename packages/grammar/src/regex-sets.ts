import { type CharSet, charSet, chars, complement, type Expression, MAX_CODE_POINT, sequence } from "./expression.ts";

/** The sets of characters and the patterns that regular expressions name, and characters in any case. */

const DIGITS = charSet([[0x30, 0x39]]);
const SPACES = charSet([
  [0x09, 0x0d],
  [0x20, 0x20],
]);
const WORDS = charSet([
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
]);
export const NEWLINE = charSet([[0x0a, 0x0a]]);
export const ANYTHING = complement([]);
export const BEYOND_ASCII = charSet([[0x80, MAX_CODE_POINT]]);

export const SETS: Record<string, CharSet> = {
  d: DIGITS,
  D: complement(DIGITS),
  s: SPACES,
  S: complement(SPACES),
  w: WORDS,
  W: complement(WORDS),
};

/** POSIX classes, `[[:alpha:]]`, as Rust has them. */
export const POSIX: Record<string, CharSet> = {
  alnum: charSet([...DIGITS, [0x41, 0x5a], [0x61, 0x7a]]),
  alpha: charSet([
    [0x41, 0x5a],
    [0x61, 0x7a],
  ]),
  ascii: charSet([[0x00, 0x7f]]),
  blank: charSet([
    [0x09, 0x09],
    [0x20, 0x20],
  ]),
  cntrl: charSet([
    [0x00, 0x1f],
    [0x7f, 0x7f],
  ]),
  digit: DIGITS,
  graph: charSet([[0x21, 0x7e]]),
  lower: charSet([[0x61, 0x7a]]),
  print: charSet([[0x20, 0x7e]]),
  punct: charSet([
    [0x21, 0x2f],
    [0x3a, 0x40],
    [0x5b, 0x60],
    [0x7b, 0x7e],
  ]),
  space: SPACES,
  upper: charSet([[0x41, 0x5a]]),
  word: WORDS,
  xdigit: charSet([
    [0x30, 0x39],
    [0x41, 0x46],
    [0x61, 0x66],
  ]),
};

/** Control characters by the letters of their escapes, and the patterns by which parts of an expression are read. */
export const CONTROLS: Record<string, string> = { n: "\n", r: "\r", t: "\t", f: "\f", v: "\v", a: "\x07" };

export const HEX = { x: /[\da-fA-F]{2}/y, u: /[\da-fA-F]{4}/y, U: /[\da-fA-F]{8}/y };
export const HEX_IN_BRACES = /\{([\da-fA-F]{1,8})\}/y;
export const COUNT = /\{(\d*)(,?)(\d*)\}/y;
export const GROUP_NAME = /P?<([A-Za-z_]\w*)>/y;
export const FLAGS = /([a-zA-Z]*)(-[a-zA-Z]+)?([:)])/y;
export const POSIX_NAME = /\[:(\^?)([a-z]+):\]/y;
export const PROPERTY = /\{[^{}]*\}|[A-Za-z]/y;
export const REFERENCE = /<[^<>]*>|\{[^{}]*\}/y;

export function one(character: string): CharSet {
  const code = character.codePointAt(0) ?? 0;
  return [[code, code]];
}

/** The set with the other case of its ASCII letters, and of single characters. */
export function withOtherCase(set: CharSet): CharSet {
  const others: [number, number][] = [];
  for (const [first, last] of set) {
    if (first === last) {
      const character = String.fromCodePoint(first);
      for (const other of [character.toLowerCase(), character.toUpperCase()]) {
        const code = other.codePointAt(0) ?? first;
        if (other === String.fromCodePoint(code)) others.push([code, code]);
      }
      continue;
    }
    const lower = [Math.max(first, 0x61), Math.min(last, 0x7a)] as const;
    const upper = [Math.max(first, 0x41), Math.min(last, 0x5a)] as const;
    if (lower[0] <= lower[1]) others.push([lower[0] - 0x20, lower[1] - 0x20]);
    if (upper[0] <= upper[1]) others.push([upper[0] + 0x20, upper[1] + 0x20]);
  }
  return charSet([...set, ...others]);
}

/** Text in any case, as characters of sets. */
export function inAnyCase(text: string): Expression {
  return sequence([...text].map((character) => chars(withOtherCase(one(character)))));
}
