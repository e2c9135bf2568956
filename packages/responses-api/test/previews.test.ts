import { readSuffix } from "@responses-edge/responses-api/platform/previews";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

describe("the last items of a long JSON array", () => {
  const text = fc.oneof(fc.string(), fc.constantFrom('},{"type":"message"', '},{"', '"},{"a":', "\\", '\\"},{"role":'));
  const message = fc.record({
    type: fc.constant("message"),
    role: fc.constantFrom("user", "assistant"),
    content: fc.array(fc.record({ type: fc.constant("input_text"), text }), { maxLength: 4 }),
  });

  it("are those that end it, whatever its texts contain, with a message of the user", () => {
    fc.assert(
      fc.property(fc.array(message, { maxLength: 20 }), fc.integer({ min: 1, max: 2_000 }), (items, length) => {
        const last = readSuffix(JSON.stringify(items), length);
        if (last === undefined) return;
        expect(last).toEqual(items.slice(-last.length));
        expect(last.some(({ role }) => role === "user")).toBe(true);
      }),
    );
  });

  it("are found in a long conversation, and not in a text that is shorter or cut", () => {
    const items = Array.from({ length: 100 }, (_, index) => ({
      type: "message",
      role: "user",
      content: `Text ${index}`,
    }));
    const json = JSON.stringify(items);
    expect(readSuffix(json, 1_000)?.at(-1)).toEqual(items.at(-1));
    expect(readSuffix(json, json.length)).toBeUndefined();
    expect(readSuffix(json.slice(0, -3), 1_000)).toBeUndefined();
  });
});
