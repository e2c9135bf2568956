import { expansionOf, MAX_EXPANSION, type Syntax } from "@responses-edge/grammar";
import { refuseLargeFormats } from "@responses-edge/responses-api/bounded-formats";
import type { ApiError } from "@responses-edge/responses-api/errors";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

/** The length of grammars whose repetitions are written out. */

describe("the expansion of a grammar", () => {
  it.each<[syntax: Syntax, text: string, expansion: number]>([
    ["regex", "((a{99}){99}){99}", 99 ** 3],
    ["regex", "a{3}b", 4],
    ["regex", "(ab){2,5}", 10],
    ["regex", "[a-z]{,7}", 7],
    ["regex", "[]{9}]{3}", 3],
    ["regex", "\\({5}", 5],
    ["regex", "a{x}", 4],
    ["regex", "(a{5})*{1,4}", 20],
    ["lark", 'start: "a"~1..1000000', 1_000_003],
    ["lark", 'start: ("ab"~3 /c{4}/)~2', 22],
    ["lark", 'start: ["a"{2,4}] // "b"~99', 6],
    ["lark", 'start: "~99" "\\"~9"', 9],
    ["lark", "start: NAME~5\nNAME: /[a-z]/", 8],
    ["ebnf", 'root ::= (("a"{99}){99}){99}', 99 ** 3 + 4],
    ["ebnf", 'root ::= "{99}" [{9}] name{3} # "a"{99}', 13],
  ])("%s %s", (syntax, text, expansion) => {
    // Signs between names and what they stand for count, too.
    expect(Math.abs(expansionOf(text, syntax) - expansion)).toBeLessThanOrEqual(2);
  });

  it("is never less than what its counts multiply to, and never fails", () => {
    const counts = fc.array(fc.integer({ min: 1, max: 200 }), { minLength: 1, maxLength: 6 });
    fc.assert(
      fc.property(counts, (times) => {
        const product = times.reduce((all, each) => all * each, 1);
        const nested = (open: string, count: (n: number) => string) =>
          times.reduce((text, n) => `(${text})${count(n)}`, open);
        expect(
          expansionOf(
            nested("a", (n) => `{${n}}`),
            "regex",
          ),
        ).toBeGreaterThanOrEqual(product);
        expect(
          expansionOf(
            nested('"a"', (n) => `~${n}`),
            "lark",
          ),
        ).toBeGreaterThanOrEqual(product);
        expect(
          expansionOf(
            nested('"a"', (n) => `{0,${n}}`),
            "ebnf",
          ),
        ).toBeGreaterThanOrEqual(product);
      }),
    );
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...'()[]{}~"/\\*+?|#,09a \n'), maxLength: 60 }), (text) => {
        for (const syntax of ["regex", "lark", "ebnf"] as const)
          expect(expansionOf(text, syntax)).toBeGreaterThanOrEqual(0);
      }),
    );
  });

  it("is found in time that grows with the text alone", () => {
    const hostile = [
      "(".repeat(100_000),
      "[".repeat(100_000),
      '"'.repeat(99_999),
      "/".repeat(100_000),
      "{".repeat(100_000),
      "a{9".repeat(40_000),
    ];
    for (const text of hostile) for (const syntax of ["regex", "lark", "ebnf"] as const) expansionOf(text, syntax);
  });
});

describe("formats", () => {
  const paramOf = (value: object): string | null | undefined => {
    try {
      refuseLargeFormats(value, ["f"]);
      return undefined;
    } catch (error) {
      return (error as ApiError).param;
    }
  };
  const bomb = "((a{99}){99}){99}";
  const optional = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`p${at}`, {}]));

  it.each<[value: object, param: string]>([
    [{ regex: bomb }, "f.regex"],
    [{ guided_regex: bomb }, "f.guided_regex"],
    [{ grammar: `root ::= ${'("a"{999}){999}'}` }, "f.grammar"],
    [{ guided_grammar: 'start: "a"~1..1000000' }, "f.guided_grammar"],
    [{ json: { properties: { a: { type: "string", pattern: `^${bomb}$` } } } }, "f.json.properties.a.pattern"],
    [{ json: JSON.stringify({ items: { pattern: bomb } }) }, "f.json.items.pattern"],
    [{ json: { patternProperties: { [bomb]: {} } } }, "f.json.patternProperties"],
    [
      { structural_tag: JSON.stringify({ format: { type: "regex", pattern: bomb } }) },
      "f.structural_tag.format.pattern",
    ],
    [
      { schema: { items: { minItems: 1_000, items: { minItems: 1_000 } }, minItems: 1 } },
      "f.schema.items.items.minItems",
    ],
    [{ schema: { minItems: 1_000, items: { pattern: "a{1000}" } } }, "f.schema.items.pattern"],
    [{ schema: { minLength: 200_000 } }, "f.schema.minLength"],
    [{ schema: { maxLength: 1_000_001 } }, "f.schema.maxLength"],
    [{ schema: { properties: optional(501) } }, "f.schema.properties"],
    [
      { tools: [{ function: { parameters: { properties: { a: { pattern: bomb } } } } }] },
      "f.tools[0].function.parameters.properties.a.pattern",
    ],
  ])("%j is refused by its name", (value, param) => {
    expect(paramOf(value)).toBe(param);
  });

  it.each<[what: string, value: object]>([
    [
      "long texts and lists",
      { schema: { properties: { a: { maxLength: 1_000_000 }, b: { type: "array", maxItems: 100_000 } } } },
    ],
    ["a usual pattern", { schema: { pattern: "^[A-Z]{2}\\d{4,10}(-[a-z0-9]{1,40}){0,8}$" } }],
    [
      "many properties that are needed",
      { schema: { properties: optional(2_000), required: Object.keys(optional(2_000)) } },
    ],
    [
      "properties of such names",
      { schema: { properties: { pattern: { const: bomb }, maxLength: { type: "integer" } } } },
    ],
    [
      "values that look like formats",
      { schema: { enum: [{ pattern: bomb }], default: { maxLength: 1e9 }, description: bomb } },
    ],
    [
      "a schema that refers to itself",
      { schema: { $defs: { a: { items: { $ref: "#/$defs/a" } } }, $ref: "#/$defs/a" } },
    ],
  ])("with %s are taken", (_what, value) => {
    expect(paramOf(value)).toBeUndefined();
  });

  it("are added up", () => {
    const part = { pattern: `a{${MAX_EXPANSION / 2}}` };
    expect(paramOf({ items: [part] })).toBeUndefined();
    expect(paramOf({ items: [part, part, part] })).toBe("f.items[2].pattern");
  });
});
