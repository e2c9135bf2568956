import { charSet, chars, choice, type Expression, type Rules, repeat, sequence, text } from "@responses-edge/grammar";
import fc from "fast-check";

/** Expressions over few characters, so that different texts of them begin alike. `leaf`: parts without parts. */
function expressions(leaf: fc.Arbitrary<Expression>): fc.Arbitrary<Expression> {
  return fc.letrec<{ part: Expression }>((tie) => ({
    part: fc.oneof(
      { depthSize: "small", withCrossShrink: true },
      leaf,
      fc.array(tie("part"), { minLength: 1, maxLength: 3 }).map(sequence),
      fc.array(tie("part"), { minLength: 1, maxLength: 3 }).map(choice),
      fc
        .tuple(tie("part"), fc.nat(2), fc.constantFrom(0, 1, 2, Number.POSITIVE_INFINITY))
        .map(([part, min, more]) => repeat(part, min, min + more)),
    ),
  })).part;
}

const characters = fc.oneof(
  fc.constantFrom("a", "b", "ab", "é", "😀", '"', "\\", "\n").map(text),
  fc.constantFrom<Expression>(
    chars(
      charSet([
        [0x61, 0x63],
        [0xe9, 0xe9],
      ]),
    ),
    chars(charSet([[0x62, 0x1_f600]])),
  ),
);

/** Rules of a regular language. */
export const regularRules: fc.Arbitrary<Rules> = expressions(characters).map((start) => ({
  start: "start",
  rules: new Map([["start", start]]),
}));

const NAMES = ["start", "one", "two"];

/** Rules that use one another, and themselves; from some of them no text comes. */
export const recursiveRules: fc.Arbitrary<Rules> = fc
  .array(
    expressions(
      fc.oneof(
        characters,
        fc.constantFrom(...NAMES).map((name): Expression => ({ kind: "rule", name })),
      ),
    ),
    {
      minLength: NAMES.length,
      maxLength: NAMES.length,
    },
  )
  .map((made) => ({ start: "start", rules: new Map(made.map((rule, at) => [NAMES[at] ?? "", rule])) }));

/** Rules as a Lark grammar. */
export function asLark({ rules }: Rules): string {
  return [...rules].map(([name, rule]) => `${name}: ${larkOf(rule)}`).join("\n");
}

function larkOf(expression: Expression): string {
  switch (expression.kind) {
    case "text":
      return JSON.stringify(expression.text);
    case "chars":
      return `(${expression.set.map((range) => range.map((code) => JSON.stringify(String.fromCodePoint(code))).join("..")).join(" | ")})`;
    case "rule":
      return expression.name;
    case "sequence":
      return expression.parts.map((part) => `(${larkOf(part)})`).join(" ");
    case "choice":
      return `(${expression.options.map(larkOf).join(" | ")})`;
    case "repeat": {
      const { part, min, max } = expression;
      const counted = max === Number.POSITIVE_INFINITY ? min : max;
      const exact = counted === 0 ? "" : `(${larkOf(part)})~${min}..${counted}`;
      return max === Number.POSITIVE_INFINITY ? `${exact} (${larkOf(part)})*` : exact;
    }
  }
}
