import { boundedCopy } from "@responses-edge/bounded-io/json-text";
import { describe, expect, it } from "vitest";

const same = (text: string) => text;

describe("a bounded copy", () => {
  it("of a short value is complete, with only its texts changed", () => {
    const value = { a: "one", list: [1, true, null, { b: "two" }], left: undefined };
    expect(boundedCopy(value, { maxLength: 1_000, change: (text) => text.toUpperCase() })).toEqual({
      copy: { a: "ONE", list: [1, true, null, { b: "TWO" }] },
      isCut: false,
    });
  });

  it("of a long value says that it was cut, and has about the maximum length", () => {
    for (const value of ["x".repeat(10_000), Array(10_000).fill("x"), [{ text: "x".repeat(900) }, "y".repeat(900)]]) {
      const { copy, isCut } = boundedCopy(value, { maxLength: 1_000, change: same });
      expect(isCut).toBe(true);
      expect(JSON.stringify(copy).length).toBeLessThan(1_100);
    }
  });

  it("changes also texts that extend beyond the cut", () => {
    const change = (text: string) => text.replaceAll(/secret-\d+/g, "[redacted]");
    const { copy } = boundedCopy(`${"x".repeat(85)}secret-123456`, { maxLength: 100, change });
    expect(copy).not.toContain("secret");
  });

  it("has members of any name", () => {
    const value = JSON.parse('{"__proto__":{"a":1},"constructor":"b"}');
    expect(JSON.stringify(boundedCopy(value, { maxLength: 1_000, change: same }).copy)).toBe(JSON.stringify(value));
  });
});
