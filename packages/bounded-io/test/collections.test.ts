import { list, map, readAhead } from "@responses-edge/bounded-io/schemas/collections";
import { expect, it } from "vitest";
import { z } from "zod";

/** Arrays and maps of a request, which are read up to their first fault. */

/** A number, and the count of those that were read. */
function counted() {
  let count = 0;
  const schema = z.number().transform((value) => {
    count += 1;
    return value;
  });
  return { schema, count: () => count };
}

it("an array ends at its first invalid element, whose place the issue has", () => {
  const { schema, count } = counted();
  const { error } = list(schema).safeParse([1, 2, "3", "4", 5]);
  expect(error?.issues).toMatchObject([{ code: "invalid_type", path: [2] }]);
  expect(count()).toBe(2);
});

it("an array that is too long is refused before any element is read", () => {
  const { schema, count } = counted();
  const { error } = list(schema, { max: 2 }).safeParse([1, 2, 3]);
  expect(error?.issues).toMatchObject([{ code: "too_big", origin: "array", maximum: 2 }]);
  expect(count()).toBe(0);
});

it("the members of an element count instead of it", () => {
  const element = z.looseObject({});
  const lists = list(element, { max: 3, members: "parts" });
  expect(lists.safeParse([{}, { parts: [1, 2] }]).success).toBe(true);
  expect(lists.safeParse([{ parts: [] }, { parts: [1, 2] }, {}]).success).toBe(true);
  expect(lists.safeParse([{ parts: [1, 2] }, { parts: [1, 2] }]).success).toBe(false);
});

it("an element that cannot be read may be explained", () => {
  const explain = (value: unknown) =>
    value === "x" ? { code: "custom" as const, path: [], message: "No letters, please." } : undefined;
  const numbers = list(z.number(), { explain });
  expect(numbers.safeParse([1, "x"]).error?.issues).toMatchObject([{ message: "No letters, please.", path: [1] }]);
  expect(numbers.safeParse([1, true]).error?.issues).toMatchObject([{ code: "invalid_type", path: [1] }]);
});

it("elements that were read ahead are not read again", () => {
  const { schema, count } = counted();
  const values = Array.from({ length: 300 }, (_, index) => index);
  const steps = [...readAhead(schema, values, 1_000)];
  expect(steps).toHaveLength(3);
  expect(list(schema).parse(values)).toEqual(values);
  expect(count()).toBe(300);
});

it("a map has no prototype of a client's, and ends at its first invalid value", () => {
  const numbers = map(z.string(), z.number(), { max: 3 });
  expect(numbers.parse(JSON.parse('{"a":1,"__proto__":{"b":2}}'))).toEqual({ a: 1 });
  expect(numbers.safeParse({ a: 1, b: "2", c: "3" }).error?.issues).toMatchObject([{ path: ["b"] }]);
  expect(numbers.safeParse({ a: 1, b: 2, c: 3, d: 4 }).success).toBe(false);
});

it("has the JSON Schema of the array or map that it stands for", () => {
  expect(z.toJSONSchema(list(z.string(), { min: 1, max: 4 }), { io: "input" })).toMatchObject({
    type: "array",
    items: { type: "string" },
    minItems: 1,
    maxItems: 4,
  });
  expect(z.toJSONSchema(map(z.string(), z.number(), { max: 2 }), { io: "input" })).toMatchObject({
    type: "object",
    additionalProperties: { type: "number" },
    maxProperties: 2,
  });
});
