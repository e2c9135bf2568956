import { conforms, mayConform, violationOf } from "@responses-edge/grammar";
import { Ajv2020 as Ajv } from "ajv/dist/2020.js";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

/** The linter takes an object that is written with this name for a promise. */
const THEN = "then";
/** A schema with a condition. */
const conditional = (condition: object, met: object, otherwise: object = {}) =>
  Object.fromEntries([
    ["if", condition],
    [THEN, met],
    ["else", otherwise],
  ]);

/** Schemas of keywords that are known here. */
const leaf = fc.constantFrom<object>(
  { type: "string" },
  { type: "integer" },
  { type: ["null", "number"] },
  { enum: ["a", 1, null] },
  { const: { a: [1] } },
  { minimum: 2 },
  { maxLength: 1 },
  { pattern: "^a" },
  { pattern: "c$|^a$" },
  { pattern: "[ab]" },
  { multipleOf: 2 },
  { uniqueItems: true },
  { dependentRequired: { a: ["b"] } },
  { propertyNames: { pattern: "[ab]" } },
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
    fc.record({ oneOf: fc.array(tie("schema"), { minLength: 1, maxLength: 3 }) }),
    fc.record({ not: tie("schema") }),
    fc.tuple(tie("schema"), tie("schema"), tie("schema")).map((parts) => conditional(...parts)),
    fc.record({ contains: tie("schema"), minContains: fc.nat(2), maxContains: fc.integer({ min: 2, max: 3 }) }),
    fc.record({ prefixItems: fc.tuple(tie("schema")), items: tie("schema") }),
    fc.record({
      patternProperties: fc.record({ "^[ab]": tie("schema") }),
      properties: fc.record({ a: tie("schema") }),
      additionalProperties: tie("schema"),
    }),
    fc.record({ dependentSchemas: fc.record({ a: tie("schema") }) }),
  ),
})).schema;
const values = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom<unknown>("a", "bc", 1, 2.5, null, true),
    fc.array(tie("value"), { maxLength: 3 }),
    // As JSON gives them: a validator tells objects without a prototype from others.
    fc.dictionary(fc.constantFrom("a", "b", "c"), tie("value"), { noNullPrototype: true }),
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

  it.each([{ pattern: "^(a+)+$" }, { format: "date" }, { not: {} }, { unknown: 1 }])(
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
      { numRuns: 75 },
    );
  });

  it("may match every schema that a validator of schemas accepts", () => {
    const beyond = fc.constantFrom<object>(
      { pattern: "^(?!b)" },
      { unevaluatedProperties: false },
      { format: "my-own" },
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
      { numRuns: 200 },
    );
    expect(kept).toBeGreaterThan(20);
  });

  it.each<[string, unknown, boolean]>([
    ['"b"', { pattern: "^a" }, false],
    ['"b"', { pattern: "^(?=a)" }, true],
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
    [
      { n: 1 },
      { properties: { n: { oneOf: [{ type: "number" }, { type: "integer" }] } } },
      /'n' matches .*oneOf.*several/,
    ],
    [{ id: "12" }, { properties: { id: { pattern: "^\\d{3}$" } } }, `'id' does not match the pattern "^\\\\d{3}$"`],
    [{ id: "x123" }, { properties: { id: { pattern: "\\d{3}" } } }, undefined],
    [{ id: "12" }, { properties: { id: { pattern: "^(?!1)" } } }, undefined],
    [{ at: "tomorrow" }, { properties: { at: { format: "date" } } }, `'at' is no "date"`],
    [{ at: "tomorrow" }, { properties: { at: { format: "my-own" } } }, undefined],
    [{ n: 3 }, { properties: { n: { multipleOf: 2 } } }, "'n' violates 'multipleOf' (2)"],
    [{ n: 0.3 }, { properties: { n: { multipleOf: 0.1 } } }, undefined],
    [{ n: 3 }, { properties: { n: { not: { type: "integer" } } } }, "'n' matches the schema of 'not'"],
    [{ n: 3 }, { properties: { n: { not: { pattern: "(?=a)" } } } }, "'n' matches the schema of 'not'"],
    [{ n: "b" }, { properties: { n: { not: { pattern: "(?=a)" } } } }, undefined],
    [{ l: [1, 1] }, { properties: { l: { uniqueItems: true } } }, "'l' violates 'uniqueItems'"],
    [{ l: [{ a: 1 }, { a: 1 }] }, { properties: { l: { uniqueItems: true } } }, "'l' violates 'uniqueItems'"],
    [{ l: [1] }, { properties: { l: { contains: { type: "string" } } } }, "'l' violates 'contains'"],
    [
      { l: ["a", 1] },
      { properties: { l: { prefixItems: [{ type: "string" }], items: { type: "string" } } } },
      /'l\[1\]'/,
    ],
    [{ a: 1 }, { dependentRequired: { a: ["b"] } }, "the value has no 'b'"],
    [
      { a: 1 },
      { propertyNames: { pattern: "^b" } },
      "the value has the name 'a', which 'propertyNames' does not allow",
    ],
    [{ a: 1 }, { patternProperties: { "^a": { type: "string" } } }, "'a' is not of type string"],
    [{ a: 1, b: 1 }, { patternProperties: { "^a": {} }, additionalProperties: false }, "'b' is not allowed"],
    [{ k: "x" }, conditional({ properties: { k: { const: "x" } } }, { required: ["v"] }), "the value has no 'v'"],
    [{ k: "y" }, conditional({ properties: { k: { const: "x" } } }, { required: ["v"] }), undefined],
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
      { numRuns: 75 },
    );
  });

  it.each<[format: string, right: string[], wrong: string[]]>([
    ["date", ["2026-11-29"], ["29.11.2026", "2026-13-01", ""]],
    ["time", ["10:00:00Z", "23:59:60.5+01:00"], ["10:00", "25:00:00Z"]],
    ["date-time", ["2026-11-29T10:00:00Z", "2026-11-29t10:00:00.123-05:30"], ["2026-11-29", "2026-11-29T10:00:00"]],
    ["duration", ["P1D", "PT1H30M", "P2W", "P1Y2M3DT4H"], ["1 day", "P", "PT"]],
    ["email", ["a@b.c", '"a b"@example.com'], ["a", "@b.c", "a@"]],
    ["hostname", ["example.com", "localhost"], ["a b", "a..b", "https://a"]],
    ["ipv4", ["127.0.0.1"], ["256.1.1.1", "1.2.3", "1.2.3.4."]],
    ["ipv6", ["::1", "2001:db8::ff00:42:8329", "::ffff:1.2.3.4"], ["1.2.3.4", ":::", "g::1"]],
    ["uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]],
    ["uri", ["https://example.com/a?b#c", "urn:isbn:0451450523"], ["example.com", "/path"]],
  ])("of the format %s is a text that certainly has not got it", (format, right, wrong) => {
    for (const text of right) expect(violationOf(text, { format }), text).toBeUndefined();
    for (const text of wrong) expect(violationOf(text, { format }), text).toBe(`the value is no "${format}"`);
  });

  it.each(["^(a+)+$", "^(a|a)*$", "(x+x+)+y", "^([a-z]+)*\\d$", "(a?){50}a{50}", "((a|b){0,90}){0,90}c"])(
    "of the hostile pattern %s is looked for in bounded work",
    (pattern) => {
      const text = `${"a".repeat(20_000)}!`;
      const strings = Array.from({ length: 1_000 }, () => text);
      // An engine that backtracks ends with none of them.
      expect(violationOf(strings, { items: { pattern } })).not.toBe("");
    },
  );

  it("is described in few words, whatever the schema has", () => {
    const long = "x".repeat(1_000_000);
    const value = { [long]: Array.from({ length: 1_000 }, () => 1) };
    const found = violationOf(value, { additionalProperties: { items: { enum: [long, ...long] } } });
    expect(found?.length ?? 0).toBeLessThan(1_000);
    expect(violationOf(value, { additionalProperties: { items: { anyOf: [{ enum: [long] }, {}] } } })).toBeUndefined();
  });
});
