import { Ajv2020 } from "ajv/dist/2020.js";
import { expect, test } from "vitest";
import type { JsonObject } from "../../dev/simulator/json.ts";
import { fillSchema } from "../../dev/simulator/schema-filler.ts";

const node: JsonObject = {
  type: "object",
  properties: {
    value: { type: "integer" },
    next: { anyOf: [{ $ref: "#/$defs/node" }, { type: "null" }] },
    children: { type: "array", items: { $ref: "#/$defs/node" } },
  },
  required: ["value", "next", "children"],
  additionalProperties: false,
};

test.each<[string, JsonObject]>([
  [
    "an object",
    {
      type: "object",
      properties: { a: { type: "string" }, b: { type: "boolean" } },
      required: ["a"],
      additionalProperties: false,
    },
  ],
  [
    "a property that may not be there",
    { type: "object", properties: { a: false, b: { type: "integer" } }, required: ["b"] },
  ],
  [
    "enum and const",
    { type: "object", properties: { a: { enum: ["x", "y"] }, b: { const: 7 } }, required: ["a", "b"] },
  ],
  [
    "numbers",
    {
      type: "array",
      prefixItems: [
        { type: "integer", minimum: 5 },
        { type: "number", maximum: -2 },
        { type: "integer", multipleOf: 4 },
        { type: "integer", exclusiveMinimum: 9 },
      ],
    },
  ],
  [
    "strings",
    {
      type: "array",
      prefixItems: [
        { type: "string", minLength: 9 },
        { type: "string", maxLength: 2 },
      ],
    },
  ],
  ["arrays", { type: "array", items: { type: "string" }, minItems: 3, uniqueItems: true }],
  [
    "anyOf with outer properties",
    { type: "object", properties: { a: { anyOf: [{ type: "number" }, { type: "null" }] } }, required: ["a"] },
  ],
  [
    "allOf",
    {
      allOf: [
        { type: "object", properties: { a: { type: "string" } }, required: ["a"] },
        { properties: { b: { type: "integer" } }, required: ["b"] },
      ],
    },
  ],
  ["nullable types", { type: ["null", "string"] }],
  ["required without a property", { type: "object", required: ["a"] }],
  [
    "definitions",
    {
      $defs: { "a/b": { type: "integer" } },
      type: "object",
      properties: { x: { $ref: "#/$defs/a~1b" } },
      required: ["x"],
    },
  ],
  ["recursion", { $defs: { node }, $ref: "#/$defs/node" }],
  [
    "recursion to the root",
    { type: "object", properties: { child: { anyOf: [{ $ref: "#" }, { type: "null" }] } }, required: ["child"] },
  ],
])("a filled schema is valid: %s", (_, schema) => {
  const filled = fillSchema(schema);
  const validate = new Ajv2020({ strict: false }).compile(schema);
  expect(validate(filled), JSON.stringify({ filled, errors: validate.errors })).toBe(true);
});

test("formats have sensible values, and endless schemas an end", () => {
  expect(fillSchema({ type: "string", format: "date" })).toBe("2025-01-31");
  expect(fillSchema({ type: "object", properties: { when: { type: "string", format: "email" } } })).toEqual({
    when: "user@example.com",
  });
  expect(() => fillSchema({ type: "object", properties: { a: { $ref: "#" } }, required: ["a"] })).not.toThrow();
});
