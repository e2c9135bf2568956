import { conforms, mayConform } from "@responses-edge/bounded-io/json-text";
import Ajv from "ajv";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

/** Schemas of keywords that are known here. */
const leaf = fc.constantFrom<object>(
  { type: "string" },
  { type: "integer" },
  { type: ["null", "number"] },
  { enum: ["a", 1, null] },
  { const: { a: [1] } },
  { minimum: 2 },
  { maxLength: 1 },
);
const schemas = fc.letrec<{ schema: object }>((tie) => ({
  schema: fc.oneof(
    { depthSize: "small" },
    leaf,
    fc.record({ properties: fc.record({ a: tie("schema"), b: tie("schema") }), required: fc.constant(["a"]) }),
    fc.record({ additionalProperties: tie("schema"), properties: fc.record({ a: tie("schema") }) }),
    fc.record({ items: tie("schema"), maxItems: fc.nat(3) }),
    fc.record({ anyOf: fc.array(tie("schema"), { minLength: 1, maxLength: 3 }) }),
    fc.record({ allOf: fc.array(tie("schema"), { minLength: 1, maxLength: 3 }) }),
  ),
})).schema;
const values = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom<unknown>("a", "bc", 1, 2.5, null, true),
    fc.array(tie("value"), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom("a", "b", "c"), tie("value")),
  ),
})).value;

/** A text is taken as it is only where it surely keeps to its schema. */

describe("a final text and its schema", () => {
  it.each<[string, unknown, boolean]>([
    ['{"a":1}', { type: "object", properties: { a: { type: "integer" } }, required: ["a"] }, true],
    ['{"a":1.5}', { type: "object", properties: { a: { type: "integer" } } }, false],
    ['{"b":1}', { type: "object", properties: { a: {} }, additionalProperties: false }, false],
    ['{"a":null}', { properties: { a: { anyOf: [{ type: "string" }, { type: "null" }] } } }, true],
    ['{"a":{"a":{}}}', { properties: { a: { $ref: "#" } }, additionalProperties: false }, true],
    ['{"a":{"b":1}}', { properties: { a: { $ref: "#" } }, additionalProperties: false }, false],
    ['{"n":[1,2]}', { properties: { n: { $ref: "#/$defs/n" } }, $defs: { n: { items: { type: "number" } } } }, true],
    ['["x","y"]', { type: "array", items: { enum: ["x", "y"] }, minItems: 2 }, true],
    ['["x"]', { type: "array", items: { enum: ["x", "y"] }, minItems: 2 }, false],
    ['"🦄"', { type: "string", maxLength: 1 }, true],
    ["{}", true, true],
    ["{", true, false],
    ["It is noon.", {}, false],
  ])("%s under %j: %s", (text, schema, holds) => {
    expect(conforms(text, schema)).toBe(holds);
  });

  it.each([{ pattern: "^(a+)+$" }, { format: "date" }, { patternProperties: {} }, { not: {} }, { unknown: 1 }])(
    "is not known to keep to %j",
    (schema) => {
      expect(conforms('"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"', schema)).toBe(false);
    },
  );

  it("is not looked at for longer than it is worth", () => {
    let schema: unknown = { type: "string" };
    // Twice as many ways at every level.
    for (let level = 0; level < 60; level += 1) schema = { anyOf: [schema, schema] };
    expect(conforms("1", schema)).toBe(false);
    expect(conforms("1", { $ref: "#" })).toBe(false);
    const many = Array.from({ length: 50_000 }, (_, index) => index);
    expect(conforms(JSON.stringify(many), { items: { enum: many.toReversed() } })).toBe(false);
  });

  it("never matches a schema that a validator of schemas refuses", () => {
    const ajv = new Ajv({ strict: false });
    fc.assert(
      fc.property(schemas, values, (schema, value) => {
        expect(conforms(JSON.stringify(value), schema)).toBe(ajv.validate(schema, value));
      }),
      { numRuns: 150 },
    );
  });

  it("may match every schema that a validator of schemas accepts", () => {
    const beyond = fc.constantFrom<object>(
      { pattern: "^a" },
      { format: "date" },
      { patternProperties: { "^a": { type: "string" } } },
      { not: { type: "string" } },
      { oneOf: [{ type: "string" }, { type: "integer" }] },
      { uniqueItems: true, minItems: 1 },
      { if: { type: "string" }, else: { type: "integer" } },
      { multipleOf: 2 },
      { minProperties: 1 },
    );
    const mixed = fc.oneof(
      schemas,
      beyond,
      beyond.map((none) => ({ $ref: "#/$defs/none", $defs: { none } })),
      fc.record({ anyOf: fc.tuple(schemas, beyond) }),
      fc.record({ allOf: fc.tuple(schemas, beyond) }),
      fc.record({ properties: fc.record({ a: beyond, b: schemas }) }),
      fc.record({ items: beyond }),
    );
    const ajv = new Ajv({ strict: false, validateFormats: false });
    let kept = 0;
    fc.assert(
      fc.property(mixed, values, (schema, value) => {
        const text = JSON.stringify(value);
        // As a parser makes it: the validator does not take values without a prototype.
        if (!ajv.validate(schema, JSON.parse(text))) return;
        kept += 1;
        expect(mayConform(text, schema)).toBe(true);
      }),
      { numRuns: 400 },
    );
    expect(kept).toBeGreaterThan(20);
  });

  it.each<[string, unknown, boolean]>([
    ['"b"', { pattern: "^a" }, true],
    ["1", { type: "string", pattern: "^a" }, false],
    ['{"a":"x"}', { properties: { a: { type: "integer" } }, patternProperties: {} }, false],
    ["It is noon.", {}, false],
    ['{"a":1', { type: "object" }, false],
  ])("%s may keep to %j: %s", (text, schema, may) => {
    expect(mayConform(text, schema)).toBe(may);
  });
});
