import {
  type Bound,
  isValid,
  parseEbnf,
  Recogniser,
  type Rules,
  remainderOf,
  toEbnf,
  toPattern,
} from "@responses-edge/grammar";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { sampleText } from "../../../dev/simulator/text-grammar.ts";
import { APPLY_PATCH, LARK_CASES, REGEX_CASES } from "./grammar-cases.ts";
import { asLark, recursiveRules, regularRules } from "./random-rules.ts";
import { randomText } from "./random-text.ts";

const lark = (definition: string): Bound => ({ type: "grammar", syntax: "lark", definition });
const ebnf = (definition: string): Bound => ({ type: "grammar", syntax: "ebnf", definition });
const regex = (pattern: string): Bound => ({ type: "regex", pattern });

/** The rules of what may follow a prefix, as the reader of EBNF has them; undefined if nothing may. */
function rest(bound: Bound, prefix: string): Rules | undefined {
  const { grammar } = remainderOf(bound, prefix);
  if (grammar === undefined) return undefined;
  const rules = parseEbnf(grammar);
  if (!rules) throw new Error(`no EBNF: ${grammar}`);
  return rules;
}

/** Tells whether rules accept a text; undefined where that takes too much work. */
function matches(rules: Rules | undefined, text: string): boolean | undefined {
  if (rules === undefined) return text === "";
  const recogniser = new Recogniser(rules);
  const isIn = recogniser.push(text) && recogniser.accepts;
  return recogniser.isUnread ? undefined : isIn;
}

/** Why there is no remainder. */
function reasonOf(bound: Bound, prefix: string): unknown {
  try {
    return remainderOf(bound, prefix);
  } catch (error) {
    return error instanceof Error && "reason" in error ? error.reason : error;
  }
}

/** The rules of a bound, as its own reader has them; undefined for one that is invalid. */
function ruledBy(bound: Bound): Rules | undefined {
  const found = reasonOf(bound, "");
  if (found === "unreadable" || found === "no_prefix") return undefined;
  return rest(bound, "") ?? { start: "start", rules: new Map([["start", { kind: "text", text: "" }]]) };
}

const BOUNDS: [bound: Bound, valid: string[]][] = [
  ...LARK_CASES.map(([definition, valid]): [Bound, string[]] => [lark(definition), [...valid]]),
  ...REGEX_CASES.map(([definition, valid]): [Bound, string[]] => [regex(definition), [...valid]]),
  [{ type: "choice", choices: ["yes", "yes, of course", "no", "日本"] }, ["yes", "yes, of course", "no", "日本"]],
  [
    ebnf('root ::= item ("," item)* # a list\nitem ::= [0-9]+ | "(" root ")" | .'),
    ["1", "12,3", "((1,2),(3))", "x,((4),?)"],
  ],
];

describe("the remainder of a bound text", () => {
  it.each(BOUNDS)("of %j has the rest of every valid text", (bound, valid) => {
    for (const text of valid) {
      for (let at = 0; at <= text.length; at += 1) {
        if (!text.slice(0, at).isWellFormed()) continue;
        const found = matches(rest(bound, text.slice(0, at)), text.slice(at));
        expect([text.slice(0, at), text.slice(at), found]).toEqual([text.slice(0, at), text.slice(at), true]);
      }
    }
  });

  it("has only texts that complete the prefix", () => {
    fc.assert(
      fc.property(fc.constantFrom(...BOUNDS), fc.nat(), fc.nat(), ([bound, valid], at, seed) => {
        const text = valid[seed % valid.length] ?? "";
        const prefix = text.slice(0, at % (text.length + 1));
        if (!prefix.isWellFormed()) return;
        const rules = rest(bound, prefix);
        for (const more of rules ? [sampleText(rules), randomText(rules, seed)] : [""]) {
          expect([prefix, more, isValid(bound, prefix + more)]).toEqual([prefix, more, true]);
        }
      }),
      { numRuns: 150 },
    );
  });

  /** A bound that some rules make; undefined if they cannot be written so. */
  const KINDS: [name: string, rules: fc.Arbitrary<Rules>, bound: (rules: Rules) => Bound | undefined][] = [
    [
      "regular expression",
      regularRules,
      (rules) => {
        const pattern = toPattern(rules);
        return pattern === undefined ? undefined : regex(pattern);
      },
    ],
    ["grammar of Lark's", recursiveRules, (rules) => lark(asLark(rules))],
    ["EBNF", recursiveRules, (rules) => ebnf(toEbnf(rules))],
  ];

  it.each(KINDS)("is exact for any %s", (_, anyRules, boundOf) => {
    const more = fc.string({ unit: fc.constantFrom("a", "b", "é", "😀", '"', "\\", "\n"), maxLength: 3 });
    fc.assert(
      fc.property(anyRules, fc.integer(), fc.nat(), more, (rules, seed, at, other) => {
        const bound = boundOf(rules);
        if (bound === undefined) return;
        const whole = ruledBy(bound);
        if (whole === undefined) return;
        const valid = randomText(whole, seed);
        const prefix = (valid + other).slice(0, at % (valid.length + 2));
        if (!prefix.isWellFormed() || valid.length > 30) return;
        const found = reasonOf(bound, prefix);
        if (found === "too_large") return;
        const after = found === "no_prefix" ? undefined : rest(bound, prefix);
        const texts = ["", other, valid.slice(prefix.length), after ? randomText(after, seed) : "a"];
        for (const text of texts) {
          const isIn = found !== "no_prefix" && matches(after, text);
          const isValid = matches(whole, prefix + text);
          if (isIn !== undefined && isValid !== undefined)
            expect([prefix, text, isIn]).toEqual([prefix, text, isValid]);
        }
      }),
      { numRuns: 100 },
    );
  });

  it("is nothing where the text is complete", () => {
    expect(remainderOf(regex("ab?"), "ab")).toEqual({ complete: true });
    expect(remainderOf({ type: "choice", choices: ["yes", "no"] }, "no")).toEqual({ complete: true });
    expect(remainderOf(lark('start: "(" start ")" | "x"'), "((x))")).toEqual({ complete: true });
  });

  it("is as short as what is left to say", () => {
    expect(remainderOf(regex("[a-z]{2,100}-[0-9]"), "abc")).toMatchObject({
      grammar: 'root ::= [a-z]{0,97} "-" [0-9]',
    });
    expect(remainderOf(regex("[a-z]{50,100}"), "abc")).toMatchObject({ grammar: "root ::= [a-z]{47,97}" });
    expect(remainderOf(lark('start: "(" start ")" | "x"'), "(((")).toMatchObject({
      grammar: 'root ::= start ")))"\nstart ::= "x" | "(" start ")"',
    });
    const list = (count: number) => remainderOf(lark('start: item start | item\nitem: "a" "b"'), "ab".repeat(count));
    expect(list(1_000)).toEqual(list(2));
  });

  it("is refused for a prefix that begins no valid text", () => {
    expect(reasonOf(regex("ab"), "b")).toBe("no_prefix");
    expect(reasonOf(regex("ab"), "abc")).toBe("no_prefix");
    expect(reasonOf(regex("😀"), "\ud83d")).toBe("no_prefix");
    expect(reasonOf({ type: "choice", choices: [] }, "")).toBe("no_prefix");
    expect(reasonOf(ebnf('root ::= "a" root'), "a")).toBe("no_prefix");
  });

  it("is refused for a bound that has no grammar here", () => {
    expect(reasonOf(regex("a(?=b)"), "")).toBe("unreadable");
    expect(reasonOf(regex("("), "")).toBe("unreadable");
    expect(reasonOf(lark("start: other"), "")).toBe("unreadable");
    expect(reasonOf(ebnf(`root ::= ${"(".repeat(10_000)}"a"${")".repeat(10_000)}`), "")).toBe("unreadable");
  });

  it("is refused beyond its bounds", () => {
    const nested = lark('start: "(" start ")" | "[" start "]" | "x"');
    expect(reasonOf(nested, "([".repeat(4_000))).toMatchObject({ grammar: expect.stringContaining("])])") });
    expect(reasonOf(nested, "([".repeat(20_000))).toBe("too_large");
    expect(reasonOf(regex("((a{0,99}){0,99}){0,99}b"), "a")).toBe("too_large");
    expect(reasonOf(lark('start: s "!"\ns: s s | "a" | '), "a".repeat(400))).toBe("too_large");
  });

  it("of Codex's grammar for patches goes on in the middle of a line", () => {
    const prefix = "*** Begin Patch\n*** Update File: a.py\n@@ def f():\n-x\n+y";
    const rules = rest(lark(APPLY_PATCH), prefix);
    const recogniser = rules && new Recogniser(rules);
    expect(recogniser?.push("z\n same\n*** End Patch\n")).toBe(true);
    expect(recogniser?.accepts).toBe(true);
  });
});
