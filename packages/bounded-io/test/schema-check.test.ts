import { conforms, mayConform, violationOf } from "@responses-edge/bounded-io/json-text";
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

describe("the violation of a schema", () => {
  const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const deep = { properties: { days: { items: { properties: { name: { enum: ["mon", "tue"] } } } } } };

  it.each<[unknown, unknown, string | RegExp | undefined]>([
    [{ city: "Rome" }, city, undefined],
    [{ city: 5 }, city, "'city' is not of type string"],
    [{ "": "]" }, city, "the value has no 'city'"],
    [[], city, "the value is not of type object"],
    [{ city: "Rome", bogus: true }, { ...city, additionalProperties: false }, "'bogus' is not allowed"],
    [{ days: [{ name: "mon" }, { name: "sun" }] }, deep, `'days[1].name' is none of "mon", "tue"`],
    [{ n: 1 }, { properties: { n: { anyOf: [{ type: "string" }, { type: "null" }] } } }, /'n' matches none of .*anyOf/],
    [{ n: 1 }, { properties: { n: { oneOf: [{ type: "string" }, { type: "null" }] } } }, /'n' matches none of .*oneOf/],
    [{ n: 9 }, { properties: { n: { maximum: 5 } } }, "'n' violates 'maximum' (5)"],
    [{ n: "x" }, { properties: { n: { const: "y" } } }, `'n' is not "y"`],
    [{ n: null }, { properties: { n: { type: "string", nullable: true } } }, undefined],
    [{ n: 1 }, { properties: { n: { $ref: "#anchor" } }, type: "object" }, undefined],
    [{ n: 1 }, { properties: { n: { type: "int" } } }, undefined],
  ])("%j under %j: %s", (value, schema, said) => {
    const found = violationOf(value, schema);
    if (said === undefined) expect(found).toBeUndefined();
    else expect(found).toEqual(said instanceof RegExp ? expect.stringMatching(said) : said);
  });

  it("is found wherever a validator of schemas finds one, and nowhere else", () => {
    const ajv = new Ajv({ strict: false });
    fc.assert(
      fc.property(schemas, values, (schema, value) => {
        const parsed: unknown = JSON.parse(JSON.stringify(value));
        expect(violationOf(parsed, schema) === undefined).toBe(ajv.validate(schema, parsed));
      }),
      { numRuns: 150 },
    );
  });

  it("is described in few words, whatever the schema has", () => {
    const long = "x".repeat(1_000_000);
    const value = { [long]: Array.from({ length: 1_000 }, () => 1) };
    const found = violationOf(value, { additionalProperties: { items: { enum: [long, ...long] } } });
    expect(found?.length ?? 0).toBeLessThan(1_000);
    expect(violationOf(value, { additionalProperties: { items: { anyOf: [{ enum: [long] }, {}] } } })).toBeUndefined();
  });
});
