import { isValid, parseEbnf, Recogniser, type Rules, remainderOf } from "@responses-edge/grammar";
import { Ajv2020 as Ajv } from "ajv/dist/2020.js";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { codePoint } from "../../../test/code-points.ts";
import { mulberry32, randomText } from "./random-text.ts";

/** A schema, and a value that conforms to it, with its members in the schema's order. */
interface Pair {
  schema: object;
  value: unknown;
}

const pair = (schema: object, value: unknown): Pair => ({ schema, value });
const texts = fc.oneof(
  fc.string({ unit: codePoint, maxLength: 6 }),
  fc.constantFrom("", "é", '"\\/', "a\nb\t", "😀", "\u0001"),
);
const names = fc.uniqueArray(fc.constantFrom("a", "ab", "b", "é", 'q"', "a\\n", "😀", "type"), { maxLength: 4 });
const hundredths = fc.integer({ min: -200_000, max: 200_000 }).map((count) => count / 100);

const leaves: fc.Arbitrary<Pair> = fc.oneof(
  texts.map((text) => pair({ type: "string" }, text)),
  texts.map((text) => pair({ type: "string", minLength: [...text].length, maxLength: [...text].length + 2 }, text)),
  fc.stringMatching(/^[a-c]{1,4}$/).map((text) => pair({ type: "string", pattern: "^[a-c]+$" }, text)),
  fc
    .constantFrom("2024-02-29T12:30:00Z", "1999-12-31T23:59:59.5+01:00")
    .map((text) => pair({ format: "date-time" }, text)),
  fc.integer().map((count) => pair({ type: "integer" }, count)),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((count) => pair({ type: "number" }, count)),
  fc
    .tuple(fc.integer({ min: -300, max: 300 }), fc.nat(200), fc.nat(20))
    .map(([count, below, above]) =>
      pair({ type: "integer", minimum: count - below, exclusiveMaximum: count + above + 1 }, count),
    ),
  fc
    .tuple(hundredths, fc.nat(5_000), fc.nat(5_000))
    .map(([count, below, above]) =>
      pair({ type: "number", minimum: count - below / 8, maximum: count + above / 8 }, count),
    ),
  fc.boolean().map((value) => pair({ type: ["boolean", "null"] }, value)),
  fc
    .constantFrom<unknown>("on", 0, null, { b: [1, { c: "d" }] }, "off", -1.5)
    .map((value) => pair({ enum: ["off", "on", 0, null, { b: [1, { c: "d" }] }, -1.5] }, value)),
  fc.constantFrom<unknown>(["x", {}], "only").map((value) => pair({ const: value }, value)),
);

const pairs = fc.letrec<{ pair: Pair }>((tie) => ({
  pair: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    leaves,
    fc
      .tuple(
        names,
        fc.array(fc.tuple(tie("pair"), fc.boolean(), fc.boolean()), { minLength: 4, maxLength: 4 }),
        fc.boolean(),
      )
      .map(([keys, members, isOpen]) => {
        const all = keys.map((key, at) => [key, members[at] ?? [pair({}, 0), true, true]] as const);
        const given = all.filter(([, [, isGiven]]) => isGiven);
        return pair(
          {
            type: "object",
            properties: Object.fromEntries(all.map(([key, [{ schema }]]) => [key, schema])),
            required: given.filter(([, [, , isRequired]]) => isRequired).map(([key]) => key),
            ...(!isOpen && { additionalProperties: false }),
          },
          Object.fromEntries(given.map(([key, [{ value }]]) => [key, value])),
        );
      }),
    fc.array(tie("pair"), { minLength: 1, maxLength: 3 }).map((items) =>
      pair(
        { type: "array", items: { anyOf: items.map(({ schema }) => schema) }, maxItems: 4 },
        items.map(({ value }) => value),
      ),
    ),
    fc.array(tie("pair"), { minLength: 1, maxLength: 3 }).map((items) =>
      pair(
        { type: "array", prefixItems: items.map(({ schema }) => schema), items: false, minItems: 1 },
        items.map(({ value }) => value),
      ),
    ),
    fc.dictionary(fc.stringMatching(/^x-[a-z]{0,3}$/), tie("pair"), { maxKeys: 1 }).map((members) =>
      pair(
        {
          type: "object",
          patternProperties: {
            "^x-": { anyOf: [...Object.values(members).map(({ schema }) => schema), { type: "null" }] },
          },
          additionalProperties: false,
          maxProperties: 3,
        },
        Object.fromEntries(Object.entries(members).map(([key, { value }]) => [key, value])),
      ),
    ),
    fc.tuple(tie("pair"), tie("pair")).map(([one, { schema }]) => pair({ anyOf: [schema, one.schema] }, one.value)),
    tie("pair").map(({ schema, value }) => pair({ allOf: [schema, { description: "the same" }] }, value)),
    fc.array(fc.integer(), { minLength: 1, maxLength: 3 }).map((items) =>
      pair(
        { $ref: "#/$defs/node" },
        items.reduceRight<unknown>((next, v) => ({ v, next }), null),
      ),
    ),
  ),
})).pair;

/** A whole schema: one in which `#/$defs/node` is a list. */
function whole(schema: object): object {
  const node = {
    type: "object",
    properties: { v: { type: "integer" }, next: { anyOf: [{ type: "null" }, { $ref: "#/$defs/node" }] } },
    required: ["v", "next"],
    additionalProperties: false,
  };
  return { ...schema, $defs: { node } };
}

/** The rules of what may follow a prefix, as a model server reads them. */
function rest(schema: object, prefix: string): { rules: Rules | undefined; unenforced: readonly string[] } {
  const remainder = remainderOf({ type: "json_schema", schema }, prefix);
  if (remainder.complete) return { rules: undefined, unenforced: [] };
  const rules = parseEbnf(remainder.grammar);
  if (!rules) throw new Error(`no EBNF: ${remainder.grammar}`);
  return { rules, unenforced: remainder.unenforced };
}

function matches(rules: Rules | undefined, text: string): boolean {
  if (!rules) return text === "";
  const recogniser = new Recogniser(rules);
  return recogniser.push(text) && recogniser.accepts;
}

function reasonOf(schema: object, prefix: string): unknown {
  try {
    return remainderOf({ type: "json_schema", schema }, prefix);
  } catch (error) {
    return error instanceof Error && "reason" in error ? error.reason : error;
  }
}

/** A value as JSON, with its members in another order, other white space, and escapes where none are needed. */
function writtenOtherwise(value: unknown, random: () => number): string {
  const space = () => ["", " ", "\n  ", "\t"][Math.floor(random() * 4)] ?? "";
  if (typeof value === "string") {
    return JSON.stringify(value).replace(/[a-zé]/g, (letter, at: number, all: string) =>
      all[at - 1] === "\\" || random() < 0.8 ? letter : `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`,
    );
  }
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const parts = Array.isArray(value)
    ? value.map((each) => writtenOtherwise(each, random))
    : Object.entries(value)
        .toSorted(() => random() - 0.5)
        .map(([key, each]) => `${writtenOtherwise(key, random)}${space()}:${space()}${writtenOtherwise(each, random)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return `${open}${space()}${parts.join(`${space()},${space()}`)}${space()}${close}`;
}

const ajv = new Ajv({ strict: false, validateFormats: false });

describe("the remainder of a JSON text under a schema", () => {
  it("has the rest of every valid text, and only texts that make it valid", () => {
    fc.assert(
      fc.property(pairs, fc.constantFrom(0, 2), fc.nat(), fc.integer(), ({ schema: part, value }, indent, at, seed) => {
        const schema = whole(part);
        const text = JSON.stringify(value, null, indent);
        const prefix = text.slice(0, at % (text.length + 1));
        if (!prefix.isWellFormed()) return;
        const { rules, unenforced } = rest(schema, prefix);
        const isIn = matches(rules, text.slice(prefix.length));
        expect([prefix, text.slice(prefix.length), isIn]).toEqual([prefix, text.slice(prefix.length), true]);
        if (!rules || unenforced.length > 0) return;
        const more = randomText(rules, seed);
        if (!more.isWellFormed()) return;
        expect([prefix, more, ajv.validate(schema, JSON.parse(prefix + more))]).toEqual([prefix, more, true]);
      }),
      { numRuns: 150 },
    );
  });

  it("follows members in any order, any white space and any escapes", () => {
    fc.assert(
      fc.property(pairs, fc.nat(), fc.integer(), ({ schema: part, value }, at, seed) => {
        const schema = whole(part);
        const text = writtenOtherwise(value, mulberry32(seed));
        const prefix = text.slice(0, at % (text.length + 1));
        if (!prefix.isWellFormed()) return;
        const { rules, unenforced } = rest(schema, prefix);
        const more = rules ? randomText(rules, seed) : "";
        if (!more.isWellFormed() || unenforced.length > 0) return;
        expect([prefix, more, ajv.validate(schema, JSON.parse(prefix + more))]).toEqual([prefix, more, true]);
      }),
      { numRuns: 150 },
    );
  });

  const person = {
    type: "object",
    properties: { name: { type: "string" }, age: { type: "integer" }, note: { type: "string" } },
    required: ["name", "age"],
    additionalProperties: false,
  };

  it.each([
    ['{"na', ['me":"x","age":1}', 'me" : "x", "age": 1, "note":""}'], ['me":"x"}', 'te":"x","age":1}']],
    ['{"age": 4, "n', ['ame":"x"}', 'ame":"x","note":"y"}'], ['ote":"x"}']],
    ['{"name":"a\\u00', ['e9","age":-2}', '41","age":0}'], ['","age":1}', '4","age":1}']],
    ['{"name":"\\ud83d', ['\\ude00","age":1}'], ['","age":1}', 'x","age":1}']],
    ['{"name":"x","age":1', [',"note":"n"}', "2}", "}"], [".5}", "]", ""]],
    ['{"name":"x","age":-', ["3}", "0}"], ["}", "-3}", "03}"]],
  ])("after %j", (prefix, admitted, refused) => {
    const { rules } = rest(person, prefix);
    for (const text of admitted) expect([text, matches(rules, text)]).toEqual([text, true]);
    for (const text of refused) expect([text, matches(rules, text)]).toEqual([text, false]);
  });

  it.each<[prefix: string, schema: object]>([
    ['{"x":', person],
    ['{"name":1', person],
    ['{"name":"x","age":1} ,', person],
    ['{"name":"\\x', person],
    ['{"name":"x","age":1.5,', person],
    ["tru", { enum: ["true", 1] }],
    ["[1,2,", { type: "array", maxItems: 2 }],
    ["12", { type: "integer", maximum: 11, minimum: 0 }],
    ["{", false as unknown as object],
    ["{", { type: "object", properties: { a: { $ref: "#" } }, required: ["a"] }],
    ["", { $ref: "#" }],
  ])("is refused after %j, which begins no valid text", (prefix, schema) => {
    expect(reasonOf(schema, prefix)).toBe("no_prefix");
  });

  it("goes on in the one alternative that what came leaves", () => {
    const shape = (kind: string, key: string) => ({
      type: "object",
      properties: { kind: { const: kind }, [key]: { type: "integer" } },
      required: ["kind", key],
      additionalProperties: false,
    });
    const { rules } = rest({ anyOf: [shape("circle", "radius"), shape("square", "side")] }, '{"kind":"square",');
    expect(matches(rules, '"side":1}')).toBe(true);
    expect(matches(rules, '"radius":1}')).toBe(false);
  });

  it("has the members of schemas that hold together in the order of the schemas", () => {
    const schema = {
      allOf: [
        { type: "object", properties: { a: { type: "integer" } }, required: ["a"] },
        { properties: { b: { type: "string" }, a: { minimum: 5 } }, required: ["b"] },
      ],
    };
    const { rules } = rest(schema, "{");
    expect(matches(rules, '"a":5,"b":""}')).toBe(true);
    expect(matches(rules, '"a":4,"b":""}')).toBe(false);
  });

  it("names the keywords that it does not enforce", () => {
    const schema = { type: "array", items: { type: "integer", multipleOf: 3 }, uniqueItems: true };
    expect(rest(schema, "[3,").unenforced).toEqual(["multipleOf", "uniqueItems"]);
    expect(isValid({ type: "json_schema", schema }, "[3,6]")).toBe(true);
    expect(isValid({ type: "json_schema", schema }, "[3,3]")).toBe(false);
  });

  it("goes on freely in a string of a format that began in another form", () => {
    const schema = { type: "string", format: "ipv6" };
    const known = rest(schema, '"2001:db8::');
    expect([matches(known.rules, '1:2"'), matches(known.rules, ':1"'), known.unenforced]).toEqual([true, false, []]);
    const other = rest(schema, '"::ffff:1.');
    expect([matches(other.rules, '2.3.4"'), other.unenforced]).toEqual([true, ["format"]]);
  });

  it("is nothing where the text is complete", () => {
    expect(remainderOf({ type: "json_object" }, '{"a":[1]}')).toEqual({ complete: true });
    expect(remainderOf({ type: "json_schema", schema: person }, '{"name":"x","age":1}')).toEqual({ complete: true });
  });

  /** An object with so many properties. */
  const wide = (count: number, extra: object) => {
    const properties = Object.fromEntries(Array.from({ length: count }, (_, at) => [`p${at}`, { type: "string" }]));
    return { type: "object", properties, ...extra };
  };
  const lengthOf = (schema: object, prefix: string) =>
    remainderOf({ type: "json_schema", schema }, prefix).grammar?.length ?? 0;

  it.each<[name: string, extra: object, prefix: string]>([
    ["optional properties", {}, '{"'],
    ["closed properties", { additionalProperties: false }, '{"p1":"x",'],
    ["a required one first", { required: ["p0"] }, "{"],
  ])("grows with the schema, not with the orders of its members: %s", (_, extra, prefix) => {
    expect(lengthOf(wide(200, extra), prefix)).toBeLessThan(2.2 * lengthOf(wide(100, extra), prefix));
  });

  it("does not grow with what is complete", () => {
    const schema = { type: "array", items: person };
    const after = (count: number) => lengthOf(schema, `[${'{"name":"x","age":1},'.repeat(count)}{"name":"`);
    expect(after(1_000)).toBe(after(1));
  });

  it.each<[name: string, schema: object, prefix: string, result: unknown]>([
    [
      "alternatives that multiply",
      { allOf: Array.from({ length: 20 }, (_, at) => ({ anyOf: [1, 2, 3].map((one) => ({ [`k${at}`]: one })) })) },
      "{",
      "too_large",
    ],
    ["brackets in one another", {}, "[".repeat(300), "too_large"],
    ["too many properties", wide(5_000, {}), "{", "too_large"],
    [
      "references in one another",
      {
        $ref: "#/$defs/d0",
        $defs: Object.fromEntries(
          Array.from({ length: 5_000 }, (_, at) => [`d${at}`, { properties: { n: { $ref: `#/$defs/d${at + 1}` } } }]),
        ),
      },
      "{",
      "too_large",
    ],
    ["repetitions in one another", { type: "string", pattern: "^((a{0,99}){0,99}){0,99}$" }, '"a', "too_large"],
    ["a long name", wide(0, { required: ["x".repeat(50_000)] }), "{", { grammar: expect.any(String) }],
    [
      "a long string",
      { type: "string", maxLength: 2_000_000 },
      `"${"é".repeat(500_000)}`,
      { grammar: expect.any(String) },
    ],
  ])("is bounded: %s", (_, schema, prefix, result) => {
    const found = reasonOf(schema, prefix);
    if (typeof result === "string") expect(found).toBe(result);
    else expect(found).toMatchObject(result as object);
  });
});
