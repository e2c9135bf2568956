/**
 * The expressions that both grammar languages of custom tools reduce to: sets of characters, in sequence, chosen from
 * and repeated, and rules by name. The functions that make expressions keep them small; none of them changes its
 * arguments.
 */
export type Expression =
  /** Exactly this text; `""` is empty. */
  | { kind: "text"; text: string }
  /** One character of a set. */
  | { kind: "chars"; set: CharSet }
  | { kind: "rule"; name: string }
  | { kind: "sequence"; parts: readonly Expression[] }
  | { kind: "choice"; options: readonly Expression[] }
  /** `max` is `Infinity` without a maximum. */
  | { kind: "repeat"; part: Expression; min: number; max: number };

/** Code points, as ranges with both ends included: sorted and disjoint. */
export type CharSet = readonly Range[];
type Range = readonly [first: number, last: number];

export const MAX_CODE_POINT = 0x10ffff;

/**
 * The characters that a model can write: all except U+0000, which ends a text for grammar compilers, and lone
 * surrogates.
 */
const ALL: CharSet = [
  [0x01, 0xd7ff],
  [0xe000, MAX_CODE_POINT],
];

export function isWritable(code: number): boolean {
  return ALL.some(([first, last]) => first <= code && code <= last);
}

/** A set of some ranges, in any order, without characters that no model can write. */
export function charSet(ranges: readonly Range[]): CharSet {
  const merged: [number, number][] = [];
  for (const [first, last] of ranges.toSorted((a, b) => a[0] - b[0])) {
    const previous = merged.at(-1);
    if (previous && first <= previous[1] + 1) previous[1] = Math.max(previous[1], last);
    else merged.push([first, last]);
  }
  return intersection(merged, ALL);
}

export function complement(set: CharSet): CharSet {
  const gaps: Range[] = [];
  let next = 0;
  for (const [first, last] of set) {
    if (first > next) gaps.push([next, first - 1]);
    next = last + 1;
  }
  if (next <= MAX_CODE_POINT) gaps.push([next, MAX_CODE_POINT]);
  return intersection(gaps, ALL);
}

export function union(sets: readonly CharSet[]): CharSet {
  return charSet(sets.flat());
}

export function intersection(a: CharSet, b: CharSet): CharSet {
  const both: Range[] = [];
  for (let i = 0, j = 0; ; ) {
    const [left, right] = [a[i], b[j]];
    if (!left || !right) return both;
    const [first, last] = [Math.max(left[0], right[0]), Math.min(left[1], right[1])];
    if (first <= last) both.push([first, last]);
    if (left[1] < right[1]) i += 1;
    else j += 1;
  }
}

/** The number of code points in a set. */
export function sizeOf(set: CharSet): number {
  return set.reduce((size, [first, last]) => size + last - first + 1, 0);
}

export function has(set: CharSet, character: string): boolean {
  const code = character.codePointAt(0) ?? 0;
  return set.some(([first, last]) => first <= code && code <= last);
}

/** Exactly this text. */
export function text(characters: string): Expression {
  return { kind: "text", text: characters };
}

export const NOTHING: Expression = { kind: "text", text: "" };

export function isNothing(expression: Expression): boolean {
  return expression.kind === "text" && expression.text === "";
}

/** One character of a set; a single one is a text. */
export function chars(set: CharSet): Expression {
  const [only] = set;
  if (only && set.length === 1 && only[0] === only[1]) return { kind: "text", text: String.fromCodePoint(only[0]) };
  return { kind: "chars", set };
}

export function sequence(parts: readonly Expression[]): Expression {
  const kept: Expression[] = [];
  let text = "";
  const endText = () => {
    if (text !== "") kept.push({ kind: "text", text });
    text = "";
  };
  for (const part of parts) {
    if (part.kind === "text") {
      text += part.text;
      continue;
    }
    endText();
    kept.push(part);
  }
  endText();
  const [first] = kept;
  if (!first) return NOTHING;
  return kept.length === 1 ? first : { kind: "sequence", parts: kept };
}

/** One of several options; single characters become one set. */
export function choice(options: readonly Expression[]): Expression {
  const sets: CharSet[] = [];
  const others: Expression[] = [];
  let hasNothing = false;
  for (const option of options) {
    const set = setOf(option);
    if (set) sets.push(set);
    else if (isNothing(option)) hasNothing = true;
    else others.push(option);
  }
  const all = sets.length > 0 ? [chars(union(sets)), ...others] : others;
  if (hasNothing) all.push(NOTHING);
  const [first] = all;
  return first && all.length === 1 ? first : { kind: "choice", options: all };
}

/** The characters that an expression can be, if it is one character. */
function setOf(expression: Expression): CharSet | undefined {
  if (expression.kind === "chars") return expression.set;
  if (expression.kind !== "text") return undefined;
  const code = expression.text.codePointAt(0);
  return code !== undefined && expression.text === String.fromCodePoint(code) ? [[code, code]] : undefined;
}

export function repeat(part: Expression, min: number, max: number): Expression {
  if (max === 0 || isNothing(part)) return NOTHING;
  // Once is enough: grammar compilers take long for repetitions in one another.
  if (part.kind === "repeat" && isOpen(part) && isOpen({ min, max })) {
    return repeat(part.part, part.min * min, Math.max(part.max, max));
  }
  return min === 1 && max === 1 ? part : { kind: "repeat", part, min, max };
}

/** Tells whether a repetition is `?`, `*` or `+`, or none. */
function isOpen({ min, max }: { min: number; max: number }): boolean {
  return min <= 1 && (max === 1 || max === Number.POSITIVE_INFINITY);
}

/** The parts of an expression. */
export function partsOf(expression: Expression): readonly Expression[] {
  switch (expression.kind) {
    case "text":
    case "chars":
    case "rule":
      return [];
    case "sequence":
      return expression.parts;
    case "choice":
      return expression.options;
    case "repeat":
      return [expression.part];
  }
}
