import { PairedText, parseJson } from "@responses-edge/bounded-io/json-text";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

/** Texts of characters, lone halves of surrogate pairs, and what may be taken for an escape. */
const texts = fc
  .array(fc.constantFrom("a", '"', "\\", "\\ud83d", "\\", "u", "😀", "\ud83d", "\ude00", "\udfff", "é"), {
    maxLength: 12,
  })
  .map((parts) => parts.join(""));

/** JSON text with each half of a pair as an escape, in upper or lower case. */
function escaped(value: unknown, isUpper: boolean): string {
  return JSON.stringify(value).replace(/[\ud800-\udfff]/g, (half) => {
    const code = half.charCodeAt(0).toString(16);
    return `\\u${isUpper ? code.toUpperCase() : code}`;
  });
}

describe("the value of a JSON text", () => {
  it("has U+FFFD for each lone half of a surrogate pair, and is otherwise that of JSON.parse", () => {
    fc.assert(
      fc.property(texts, texts, fc.boolean(), (key, text, isUpper) => {
        const json = escaped([{ [`${key}k`]: text }, 1], isUpper);
        const expected = [{ [`${key}k`.toWellFormed()]: text.toWellFormed() }, 1];
        // Compared as JSON: a message of the test with half a pair could not be sent.
        expect(JSON.stringify(parseJson(json))).toBe(JSON.stringify(expected));
      }),
      { numRuns: 1_000 },
    );
  });

  it("cannot be had of a text that is no JSON", () => {
    for (const text of ["", '{"a": "\\ud83d"', '"\\ud83']) expect(() => parseJson(text)).toThrow(SyntaxError);
  });
});

describe("a text that comes in pieces", () => {
  it("is the same wherever it was cut, and each piece has whole characters", () => {
    fc.assert(
      fc.property(texts, fc.array(fc.nat(20), { maxLength: 4 }), (text, cuts) => {
        const at = [0, ...cuts.filter((cut) => cut < text.length).sort((a, b) => a - b), text.length];
        const paired = new PairedText();
        const pieces = at.slice(1).map((end, index) => paired.push(text.slice(at[index], end)));
        expect(pieces.every((piece) => piece.isWellFormed())).toBe(true);
        expect(JSON.stringify(pieces.join(""))).toBe(
          JSON.stringify(text.replace(/[\ud800-\udbff]$/, "").toWellFormed()),
        );
      }),
      { numRuns: 1_000 },
    );
  });
});
