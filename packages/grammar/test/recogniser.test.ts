import type { Rules } from "@responses-edge/grammar";
import { type GrammarFormat, parseEbnf, Recogniser, readGrammar, toEbnf } from "@responses-edge/grammar";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { sampleText } from "../../../dev/simulator/text-grammar.ts";
import { APPLY_PATCH, LARK_CASES, REGEX_CASES } from "./grammar-cases.ts";
import { admits } from "./oracle.ts";

const lark = (definition: string): GrammarFormat => ({ syntax: "lark", definition });
const regex = (definition: string): GrammarFormat => ({ syntax: "regex", definition });

function rulesOf(format: GrammarFormat): Rules {
  const reading = readGrammar(format);
  if ("beyond" in reading) throw new Error(reading.beyond);
  return reading;
}

/** Tells whether a text that arrives in parts of these lengths matches the rules. */
function keeps(rules: Rules, text: string, lengths: readonly number[] = [text.length || 1]): boolean {
  const recogniser = new Recogniser(rules);
  for (let at = 0, turn = 0; at < text.length; turn += 1) {
    const length = lengths[turn % lengths.length] ?? 1;
    if (!recogniser.push(text.slice(at, at + length))) return false;
    at += length;
  }
  return recogniser.accepts;
}

/** The rules as the simulator reads them from their form for model servers: they must accept the same texts. */
function oracleOf(rules: Rules): Rules {
  const grammar = parseEbnf(toEbnf(rules));
  if (!grammar) throw new Error("no EBNF");
  return grammar;
}

const CASES = [
  ...LARK_CASES.map(([definition, ...texts]) => [lark(definition), ...texts] as const),
  ...REGEX_CASES.map(([definition, ...texts]) => [regex(definition), ...texts] as const),
];

describe("the recogniser of a grammar", () => {
  it.each(CASES)("%j accepts the right texts", (format, admitted, refused) => {
    const rules = rulesOf(format);
    for (const text of admitted) expect([text, keeps(rules, text)]).toEqual([text, true]);
    for (const text of refused) expect([text, keeps(rules, text)]).toEqual([text, false]);
  });

  it("agrees with the grammar about any text, in any pieces", () => {
    const grammars = CASES.map(([format]) => rulesOf(format)).map((rules) => ({ rules, oracle: oracleOf(rules) }));
    const lengths = fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 4 });
    const at = fc.nat();
    const other = fc.constantFrom("", "a", "x", "\n", " ", "1", '"', "é", "😀", "+", "()");
    fc.assert(
      fc.property(fc.constantFrom(...grammars), at, at, other, lengths, ({ rules, oracle }, from, to, inserted, by) => {
        const sample = sampleText(oracle);
        const [start, end] = [from % (sample.length + 1), to % (sample.length + 1)].sort((a, b) => a - b) as [
          number,
          number,
        ];
        const text = (sample.slice(0, start) + inserted + sample.slice(end)).toWellFormed();
        expect([text, keeps(rules, text, by)]).toEqual([text, admits(oracle, text)]);
      }),
      { numRuns: 3_000 },
    );
  });

  it("breaks a text off at the first character that cannot stand there", () => {
    const recogniser = new Recogniser(rulesOf(lark(APPLY_PATCH)));
    expect(recogniser.push("*** Begin ")).toBe(true);
    expect(recogniser.push("Pitch\n")).toBe(false);
    expect(recogniser.read).toBe("*** Begin P".length);
    expect(recogniser.push("*** Begin Patch")).toBe(false);
    expect(recogniser.accepts).toBe(false);
  });

  it("takes no half of a character", () => {
    const rules = rulesOf(regex("😀"));
    const [high = "", low = ""] = "😀".split("");
    expect(keeps(rules, "😀", [1])).toBe(true);
    expect(keeps(rules, high)).toBe(false);
    expect(keeps(rules, low)).toBe(false);
  });

  /** Grammars over which readers that try one way after another, or that keep every way apart, never come to an end. */
  const HARD: [name: string, format: GrammarFormat, text: string][] = [
    ["repetitions in one another", regex("((a*)*)*b"), "a".repeat(5_000)],
    ["choices that are the same", regex("(a|a|a?)+b"), "a".repeat(5_000)],
    ["rules that use themselves twice", lark('start: s "!"\ns: s s | "a" | '), "a".repeat(400)],
    ["a rule that uses itself at its end", lark('start: l\nl: "a" l | "b"'), "a".repeat(20_000)],
    ["brackets in one another", lark('start: b\nb: "(" b ")" | "x"'), "(".repeat(20_000)],
    ["many repetitions", regex("((a{0,99}){0,99}){0,99}b"), "a".repeat(300)],
    ["many repetitions of what need not be there", regex("(a?){10000}"), "a".repeat(10_000)],
  ];
  it.each(HARD)("works no more than so much for %s", (_, format, text) => {
    const recogniser = new Recogniser(rulesOf(format));
    for (const character of text) recogniser.push(character);
    expect(recogniser.steps).toBeLessThanOrEqual(2_000_001);
  });

  it("works as much for each character of a patch as for the one before", () => {
    const hunk = "*** Update File: a.py\n@@ def f():\n-x\n+y\n same\n";
    const steps = [10, 20].map((count) => {
      const recogniser = new Recogniser(rulesOf(lark(APPLY_PATCH)));
      expect(recogniser.push(`*** Begin Patch\n${hunk.repeat(count)}*** End Patch\n`)).toBe(true);
      expect(recogniser.accepts).toBe(true);
      return recogniser.steps;
    }) as [number, number];
    expect(steps[1]).toBeLessThan(2 * steps[0]);
  });
});
