import {
  type CharSet,
  charSet,
  chars,
  choice,
  complement,
  type Expression,
  has,
  intersection,
  MAX_CODE_POINT,
  NOTHING,
  repeat,
  sequence,
  sizeOf,
} from "./expression.ts";
import type { Rules } from "./lark-rules.ts";

/** Strings as JSON writes them, as expressions over the text between the quotes. */

/** Every character of a string. */
export const ANY_CHARACTER: CharSet = complement([]);

/** Every character that an escape can stand for: also U+0000, which no model can write otherwise. */
export const CODED: CharSet = [
  [0x00, 0xd7ff],
  [0xe000, MAX_CODE_POINT],
];

/** Characters that stand for themselves. */
const PLAIN = complement(
  charSet([
    [0x00, 0x1f],
    [0x22, 0x22],
    [0x5c, 0x5c],
  ]),
);

const SHORT: Readonly<Record<string, string>> = {
  '"': '"',
  "\\": "\\",
  "/": "/",
  "\b": "b",
  "\f": "f",
  "\n": "n",
  "\r": "r",
  "\t": "t",
};

/** Characters that JSON must escape. */
const ESCAPED = complement(PLAIN);

/** The rules that texts in JSON refer to, by their names. */
export const STRING_RULES = {
  /** Every escape: one of a character, or a pair of escapes. */
  escape: () => escapesOf(CODED, "") ?? NOTHING,
  /** The characters that JSON must escape, as `JSON.stringify` writes them. */
  escaped: () => escapesAsWritten(ESCAPED),
};

/**
 * Texts as JSON writes them in strings. Characters that JSON must escape are written as `JSON.stringify` does; where
 * any character may stand, any escape may, too. `rule` gives the reference to one of {@link STRING_RULES}.
 */
export function asJson(expression: Expression, rule: (name: keyof typeof STRING_RULES) => Expression): Expression {
  const encoded = (part: Expression): Expression => {
    switch (part.kind) {
      case "text":
        return { kind: "text", text: JSON.stringify(part.text).slice(1, -1) };
      case "chars":
        return isAny(part.set) ? choice([chars(PLAIN), rule("escape")]) : written(part.set);
      case "rule":
        return part;
      case "sequence":
        return sequence(part.parts.map(encoded));
      case "choice":
        return choice(part.options.map(encoded));
      case "repeat": {
        const { min, max } = part;
        if (part.part.kind !== "chars" || !isAny(part.part.set) || min > 0 || max !== Number.POSITIVE_INFINITY) {
          return repeat(encoded(part.part), min, max);
        }
        // Runs of plain characters stay together: special tokens may have to be kept out of them.
        const run = repeat(chars(PLAIN), 0, max);
        return sequence([run, repeat(sequence([rule("escape"), run]), 0, max)]);
      }
    }
  };
  const written = (set: CharSet): Expression => {
    const others = intersection(set, ESCAPED);
    const escapes = sizeOf(others) === sizeOf(ESCAPED) ? rule("escaped") : escapesAsWritten(others);
    const plain = intersection(set, PLAIN);
    return plain.length === 0 ? escapes : choice(others.length === 0 ? [chars(plain)] : [chars(plain), escapes]);
  };
  return encoded(expression);
}

function isAny(set: CharSet): boolean {
  return sizeOf(set) === sizeOf(ANY_CHARACTER);
}

/** Characters of a set as `JSON.stringify` writes them. */
function escapesAsWritten(set: CharSet): Expression {
  const options: Expression[] = [];
  for (const [first, last] of set) {
    for (let code = first; code <= last; code += 1) {
      options.push({ kind: "text", text: JSON.stringify(String.fromCodePoint(code)).slice(1, -1) });
    }
  }
  return choice(options);
}

/** A string that has begun, without its first quote. */
export interface OpenString {
  /** The characters so far, without half a pair of escapes. */
  text: string;
  /** A begun escape, or the first escape of a pair and what follows: `\`, `\u00`, `\ud83d\u`. Empty without one. */
  pending: string;
}

const ESCAPE_AT_END = /(?:\\u[dD][89abAB][\da-fA-F]{2})?\\(?:u[\da-fA-F]{0,3})?$|\\u[dD][89abAB][\da-fA-F]{2}$/;

/** Reads a string that has begun; undefined for text that no string begins with. Linear in its length. */
export function readOpenString(raw: string): OpenString | undefined {
  // A backslash at the end begins an escape if the number of those before it is even.
  const tail = raw.slice(-12);
  const before = /\\*$/.exec(raw.slice(0, raw.length - tail.length))?.[0].length ?? 0;
  const offset = before % 2;
  let at = offset;
  let pending = "";
  while (at < tail.length) {
    if (tail[at] !== "\\") {
      at += 1;
      continue;
    }
    const found = ESCAPE_AT_END.exec(tail.slice(at));
    if (found?.index === 0) {
      pending = tail.slice(at);
      break;
    }
    at += tail[at + 1] === "u" ? 6 : 2;
  }
  try {
    const text: unknown = JSON.parse(`"${raw.slice(0, raw.length - pending.length)}"`);
    return typeof text === "string" ? { text, pending } : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The rests of the escapes that begin with `pending` and stand for characters of a set; undefined without one.
 */
export function escapesOf(set: CharSet, pending: string): Expression | undefined {
  const options: Expression[] = [];
  for (const [character, letter] of Object.entries(SHORT)) {
    if (has(set, character) && `\\${letter}`.startsWith(pending)) {
      options.push({ kind: "text", text: `\\${letter}`.slice(pending.length) });
    }
  }
  for (const [first, last] of set) {
    for (const [low, high] of [
      [first, Math.min(last, 0xd7ff)],
      [Math.max(first, 0xe000), Math.min(last, 0xffff)],
    ] as const) {
      options.push(...unitRests(low, high, pending));
    }
    for (const [high, low, lowEnd] of surrogates(Math.max(first, 0x1_0000), last)) {
      options.push(...pairRests(high, low, lowEnd, pending));
    }
  }
  return options.length === 0 ? undefined : choice(options);
}

type Range = readonly [first: number, last: number];

/** Ranges of pairs of surrogates: of the first ones, and of the second ones. */
function surrogates(first: number, last: number): [high: Range, low: number, lowEnd: number][] {
  if (first > last) return [];
  const [highest, lowest] = [(last - 0x1_0000) >> 10, (first - 0x1_0000) >> 10];
  const [start, end] = [(first - 0x1_0000) & 0x3ff, (last - 0x1_0000) & 0x3ff];
  const found: [Range, number, number][] = [];
  const add = (from: number, to: number, low: number, high: number) => {
    if (from <= to) found.push([[0xd800 + from, 0xd800 + to], 0xdc00 + low, 0xdc00 + high]);
  };
  if (lowest === highest) add(lowest, lowest, start, end);
  else {
    const [isWholeFirst, isWholeLast] = [start === 0, end === 0x3ff];
    if (!isWholeFirst) add(lowest, lowest, start, 0x3ff);
    add(isWholeFirst ? lowest : lowest + 1, isWholeLast ? highest : highest - 1, 0, 0x3ff);
    if (!isWholeLast) add(highest, highest, 0, end);
  }
  return found;
}

function pairRests(high: Range, low: number, lowEnd: number, pending: string): Expression[] {
  const whole = unitRests(low, lowEnd, "");
  // The first escape may be complete.
  if (pending.length > 6) return hasUnit(high, pending.slice(0, 6)) ? unitRests(low, lowEnd, pending.slice(6)) : [];
  const firsts = pending.length === 6 ? (hasUnit(high, pending) ? [NOTHING] : []) : unitRests(...high, pending);
  return firsts.map((begin) => sequence([begin, choice(whole)]));
}

function hasUnit([first, last]: Range, written: string): boolean {
  const code = Number.parseInt(written.slice(2), 16);
  return first <= code && code <= last;
}

/** The rests of the escapes `\uXXXX` of a range of code units that begin with `pending`. */
function unitRests(first: number, last: number, pending: string): Expression[] {
  const begun = pending.slice(2);
  if (first > last || !"\\u".startsWith(pending.slice(0, 2)) || begun.length > 4) return [];
  const left = 4 - begun.length;
  const base = begun === "" ? 0 : Number.parseInt(begun, 16) * 16 ** left;
  const [low, high] = [Math.max(first, base), Math.min(last, base + 16 ** left - 1)];
  if (low > high) return [];
  const digits = hexadecimal(low - base, high - base, left);
  return [sequence([{ kind: "text", text: "\\u".slice(pending.length) }, digits])];
}

/** Numbers of a range, in so many hexadecimal digits. */
function hexadecimal(low: number, high: number, digits: number): Expression {
  if (digits === 0) return NOTHING;
  const unit = 16 ** (digits - 1);
  if (low === 0 && high === unit * 16 - 1) return repeat(hexDigits(0, 15), digits, digits);
  const [first, last] = [Math.floor(low / unit), Math.floor(high / unit)];
  if (first === last) return sequence([hexDigits(first, first), hexadecimal(low % unit, high % unit, digits - 1)]);
  const isWholeFirst = low % unit === 0;
  const isWholeLast = high % unit === unit - 1;
  const [from, to] = [isWholeFirst ? first : first + 1, isWholeLast ? last : last - 1];
  const options: Expression[] = [];
  if (!isWholeFirst) options.push(sequence([hexDigits(first, first), hexadecimal(low % unit, unit - 1, digits - 1)]));
  if (from <= to) options.push(sequence([hexDigits(from, to), repeat(hexDigits(0, 15), digits - 1, digits - 1)]));
  if (!isWholeLast) options.push(sequence([hexDigits(last, last), hexadecimal(0, high % unit, digits - 1)]));
  return choice(options);
}

function hexDigits(first: number, last: number): Expression {
  const ranges: [number, number][] = [];
  for (let digit = first; digit <= last; digit += 1) {
    for (const letter of new Set([digit.toString(16), digit.toString(16).toUpperCase()])) {
      const code = letter.charCodeAt(0);
      ranges.push([code, code]);
    }
  }
  return chars(charSet(ranges));
}

/** Rules of one expression. */
export function rulesOfOne(expression: Expression): Rules {
  return { start: "start", rules: new Map([["start", expression]]) };
}
