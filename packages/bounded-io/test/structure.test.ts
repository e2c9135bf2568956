import { MAX_DEPTH, structureFault } from "@responses-edge/bounded-io/json-text";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const bytes = (text: string) => new TextEncoder().encode(text);

/** The elements and members of a value, an empty object or array counting as one, as deep as it is. */
function valuesIn(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  const members = Object.values(value);
  return Math.max(1, members.length) + members.reduce((sum: number, member) => sum + valuesIn(member), 0);
}

describe("the structure of JSON", () => {
  it("is that of its values, whatever quotes, backslashes and brackets its strings have, however long", () => {
    const text = fc
      .array(fc.constantFrom('"', "\\", "[", "]", "{", "}", ",", "a", "é", "x".repeat(40)), { maxLength: 30 })
      .map((parts) => parts.join(""));
    const value = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        text,
        fc.integer(),
        fc.array(tie("value"), { maxLength: 5 }),
        fc.dictionary(text, tie("value"), { maxKeys: 5 }),
      ),
    })).value;
    fc.assert(
      fc.property(value, (value) => {
        const json = bytes(JSON.stringify(value));
        const values = valuesIn(value);
        expect(structureFault(json, values)).toBeUndefined();
        if (values > 0) expect(structureFault(json, values - 1)).toBe("values");
      }),
      { numRuns: 500 },
    );
  });

  it("may be so deep and no deeper", () => {
    const nested = (depth: number) => bytes(`${"[".repeat(depth)}"]"${"]".repeat(depth)}`);
    expect(structureFault(nested(MAX_DEPTH))).toBeUndefined();
    expect(structureFault(nested(MAX_DEPTH + 1))).toBe("depth");
  });

  it("of a text that ends within a string has no fault: the parser refuses it", () => {
    for (const tail of ["", "\\", "x".repeat(100), `${"x".repeat(100)}\\"`]) {
      expect(structureFault(bytes(`["${tail}`))).toBeUndefined();
    }
  });
});
