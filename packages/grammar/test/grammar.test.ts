import type { Rules } from "@responses-edge/grammar";
import { type GrammarFormat, parseEbnf, placeOf, readGrammar, toEbnf, toPattern } from "@responses-edge/grammar";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parseRegex, sampleText } from "../../../dev/simulator/text-grammar.ts";
import { charactersTouched } from "../../../test/work.ts";
import { APPLY_PATCH, type GrammarCase, LARK_CASES, REGEX_CASES } from "./grammar-cases.ts";
import { admits } from "./oracle.ts";

const SPECIAL = ["<|end|>", "<|start|>", "<|channel|>", "<|message|>"];

const lark = (definition: string): GrammarFormat => ({ syntax: "lark", definition });
const regex = (definition: string): GrammarFormat => ({ syntax: "regex", definition });

function rulesOf(format: GrammarFormat): Rules {
  const reading = readGrammar(format);
  if ("beyond" in reading) throw new Error(reading.beyond);
  return reading;
}

/** Reads a grammar's EBNF with the simulator's reader. */
function translated(format: GrammarFormat, excludes: readonly string[] = []): Rules {
  const ebnf = toEbnf(rulesOf(format), { excludes });
  const grammar = parseEbnf(ebnf);
  if (!grammar) throw new Error(`no EBNF: ${ebnf}`);
  return grammar;
}

/** What is wrong with a grammar, and where. */
function faultOf(format: GrammarFormat): { line: number; column: number; message: string } {
  try {
    readGrammar(format);
  } catch (error) {
    if (!(error instanceof Error) || !("at" in error)) throw error;
    return { ...placeOf(format.definition, Number(error.at)), message: error.message };
  }
  throw new Error("no fault");
}

describe.each<[string, GrammarCase[], (definition: string) => GrammarFormat]>([
  ["Lark", LARK_CASES, lark],
  ["regular expressions", REGEX_CASES, regex],
])("%s", (_, cases, format) => {
  it.each(cases)("%s accepts the right texts, as EBNF", (definition, admitted, refused) => {
    for (const excludes of [[], SPECIAL]) {
      const grammar = translated(format(definition), excludes);
      for (const text of admitted) expect([text, admits(grammar, text)]).toEqual([text, true]);
      for (const text of refused) expect([text, admits(grammar, text)]).toEqual([text, false]);
      expect(admits(grammar, sampleText(grammar))).toBe(true);
    }
  });

  it.each(cases)("%s has a pattern only where that admits nothing else", (definition, admitted, refused) => {
    const pattern = toPattern(rulesOf(format(definition)));
    if (pattern === undefined) return;
    const grammar = parseRegex(pattern);
    const ecma = new RegExp(pattern, "u");
    for (const text of admitted) {
      // What JSON writes with a backslash is left out.
      const isPlain = JSON.stringify(text) === `"${text}"`;
      expect([text, ecma.test(text), grammar && admits(grammar, text)]).toEqual([text, isPlain, isPlain]);
    }
    for (const text of refused) expect([text, ecma.test(text)]).toEqual([text, false]);
  });
});

it("writes a backslash before 'u00' as one, and control characters as the shortest escapes", () => {
  const rules = rulesOf(regex("\\\\u001b\\x1b"));
  expect(toEbnf(rules)).toBe(String.raw`root ::= "\\u001b\x1b"`);
  const read = parseEbnf(toEbnf(rules));
  expect(read && admits(read, "\\u001b\x1b")).toBe(true);
});

it("Codex's grammar for patches becomes this EBNF", () => {
  expect(toEbnf(rulesOf(lark(APPLY_PATCH))).split("\n")).toEqual([
    "root ::= begin_patch hunk+ end_patch",
    'begin_patch ::= "*** Begin Patch" LF',
    "hunk ::= add_hunk | delete_hunk | update_hunk",
    'end_patch ::= "*** End Patch" LF?',
    'LF ::= "\\n"',
    'add_hunk ::= "*** Add File: " filename LF add_line+',
    'delete_hunk ::= "*** Delete File: " filename LF',
    'update_hunk ::= "*** Update File: " filename LF change_move? change?',
    "filename ::= [^\\n]+",
    'add_line ::= "+" [^\\n]* LF',
    'change_move ::= "*** Move to: " filename LF',
    "change ::= (change_context | change_line)+ eof_line?",
    'change_context ::= ("@@" | "@@ " [^\\n]+) LF',
    "change_line ::= [ +-] [^\\n]* LF",
    'eof_line ::= "*** End of File" LF',
  ]);
});

it("a run of characters has no special token in it where one would end the message", () => {
  const grammar = translated(lark(APPLY_PATCH), SPECIAL);
  const patch = (line: string) => `*** Begin Patch\n*** Add File: a\n+${line}\n*** End Patch`;
  for (const text of ["x <| f", "a <|end", "<|en|>", "<<"]) expect(admits(grammar, patch(text))).toBe(true);
  for (const text of SPECIAL) expect(admits(grammar, patch(`x ${text}`))).toBe(false);
});

it.each<[string, string]>([
  ["start: /(?=a)b/", "look-arounds"],
  ["start: /(?<!a)b/", "look-arounds"],
  ["start: /\\bfoo/", "word boundaries"],
  ["start: /(a)\\1/", "references to groups"],
  ["start: /\\p{L}+/", "Unicode properties"],
  ["start: /[a-z&&b]/", "operations on classes"],
  ["start: /a++/", "possessive quantifiers"],
  ["start: /^a$/", "anchors in a terminal"],
  ["start: / a b /x", "the flag 'x' of regular expressions"],
  ['start: "a"~20000', "more than 10000 repetitions"],
  ['start: pair{"a"}\npair{x}: x x', "templates"],
  ["start: A\n%declare A", "%declare"],
  ['start: "a"\n%override start: "b"', "%override"],
  ["start: A\n%import python.A", "libraries other than 'common'"],
])("%s is a grammar that cannot be bound", (definition, beyond) => {
  expect(readGrammar(lark(definition))).toEqual({ beyond });
});

it.each<[string, { line: number; column: number }, string]>([
  ['start: "a', { line: 1, column: 8 }, "unterminated string"],
  ["start: /a", { line: 1, column: 8 }, "unterminated regular expression"],
  ['start "a"', { line: 1, column: 7 }, "expected ':', found a string"],
  ['start: ("a"', { line: 1, column: 12 }, "expected ')', found the end of the grammar"],
  ["start: x\n\nx: y", { line: 3, column: 4 }, "'y' is not defined"],
  ['x: "a"', { line: 1, column: 1 }, "there is no rule 'start'"],
  ['start: "a"\nstart: "b"', { line: 2, column: 1 }, "'start' is defined more than once"],
  ['start: A\nA: "x" A', { line: 2, column: 1 }, "the terminal 'A' uses itself"],
  ["start: A\nA: start", { line: 2, column: 4 }, "a terminal cannot use a rule"],
  ['start: "x" start', { line: 1, column: 1 }, "no text of 'start' has an end"],
  ['start: "a" $', { line: 1, column: 12 }, "unexpected character"],
  ["start: %json {}", { line: 1, column: 8 }, "expected the end of the line, found '%json'"],
  ["%import common.FOO", { line: 1, column: 16 }, "the library 'common' has no 'FOO'"],
  ['start: "é" /x(/', { line: 1, column: 14 }, "invalid regular expression: a group without its ')'"],
  ['start: "a"~3..2', { line: 1, column: 11 }, "a repetition whose maximum is below its minimum"],
  [`start: ${"(".repeat(40)}"a"`, { line: 1, column: 41 }, "brackets are nested more than 32 deep"],
  ["", { line: 1, column: 1 }, "there is no rule 'start'"],
])("%s is no grammar: the fault says where", (definition, place, message) => {
  expect(faultOf(lark(definition))).toEqual({ ...place, message });
});

it.each<[string, string]>([
  ["[a", "a class without its ']'"],
  ["a)", "unmatched ')'"],
  ["*a", "nothing to repeat"],
  ["a{2}{3}", "a repetition of a repetition"],
  ["[z-a]", "a range whose end is before its beginning"],
  ["\\q", "unknown escape '\\q'"],
  ["a\\", "unknown escape '\\'"],
  ["(?<a", "unknown extension of a group"],
  ["\\x{110000}", "'\\x' without the number of a character"],
])("the regular expression %s is none", (pattern, message) => {
  expect(faultOf(regex(pattern)).message).toBe(`invalid regular expression: ${message}`);
});

/** A piece of a grammar, and a text that it admits. */
type Sample = { source: string; text: string };

const LITERALS = ["a", "bc", " ", "+", '"', "\\", "\n", "é", "😀", "<|end|", "{", "*/"];

function sample(names: readonly Sample[]): fc.Arbitrary<Sample> {
  const literal = fc.constantFrom(...LITERALS).map((text): Sample => ({ source: JSON.stringify(text), text }));
  const anyCase = fc
    .constantFrom("Ab", "x-Y")
    .map((text): Sample => ({ source: `${JSON.stringify(text.toLowerCase())}i`, text }));
  const range = fc.constantFrom("a", "m", "z").map((text): Sample => ({ source: '"a".."z"', text }));
  const matched = fc.constantFrom<Sample>(
    { source: "/[0-9]+/", text: "042" },
    { source: "/(x|yz)*?w/", text: "xyzw" },
    { source: "/[^\\n\\/]{2,}/", text: "-^]" },
    { source: "/(?i:k).\\d/", text: "K!7" },
    { source: "/\\w+\\s/", text: "a_1\t" },
  );
  const named = names.length > 0 ? [fc.constantFrom(...names)] : [];
  const { piece } = fc.letrec<{ piece: Sample; atom: Sample }>((tie) => ({
    piece: fc.oneof(
      { depthSize: "small", withCrossShrink: true },
      tie("atom"),
      fc
        .tuple(tie("piece"), tie("piece"))
        .map(([a, b]) => ({ source: `${a.source} ${b.source}`, text: a.text + b.text })),
      fc.tuple(tie("piece"), tie("piece"), fc.boolean()).map(([a, b, isFirst]) => ({
        source: `(${a.source} | ${b.source})`,
        text: isFirst ? a.text : b.text,
      })),
      fc.tuple(tie("piece"), fc.constantFrom("*", "+", "?", "~2", "~0..3"), fc.nat(3)).map(([a, sign, count]) => ({
        source: `(${a.source})${sign}`,
        text: a.text.repeat(sign === "~2" ? 2 : sign === "?" ? count % 2 : sign === "+" ? count + 1 : count),
      })),
      fc
        .tuple(tie("piece"), fc.boolean())
        .map(([a, isThere]) => ({ source: `[${a.source}]`, text: isThere ? a.text : "" })),
    ),
    atom: fc.oneof(literal, anyCase, range, matched, ...named),
  }));
  return piece;
}

/** A grammar of a few rules and terminals, and a text of its first rule. */
const grammars = fc
  .tuple(sample([]), sample([]))
  .chain(([a, b]) => {
    const names: Sample[] = [
      { source: "A", text: a.text },
      { source: "b", text: b.text },
    ];
    return sample(names).map((start) => ({
      definition: `start: ${start.source}\nA: ${a.source} -> of_no_matter\n?b: ${b.source}\n`,
      text: start.text,
    }));
  })
  .filter(({ definition }) => definition.length < 600);

it("a text that a generated grammar admits is one that its EBNF does", () => {
  fc.assert(
    fc.property(grammars, ({ definition, text }) => {
      expect(admits(translated(lark(definition)), text)).toBe(true);
    }),
    { numRuns: 300 },
  );
});

it("no text makes the readers fail otherwise than by saying where", () => {
  const pieces = fc.constantFrom(
    ...'start: |()[]{}~*+?.,"/\\%\nAab->..^$&<>=!#éi0123'.split(""),
    "%import common.",
    "WS",
    "(?",
    "[^",
    "\\u",
  );
  fc.assert(
    fc.property(
      fc.array(pieces, { maxLength: 60 }),
      fc.constantFrom<"lark" | "regex">("lark", "regex"),
      (parts, syntax) => {
        const definition = (syntax === "lark" ? "start: " : "") + parts.join("");
        try {
          const reading = readGrammar({ syntax, definition });
          if ("rules" in reading) {
            expect(parseEbnf(toEbnf(reading))).toBeDefined();
            toPattern(reading);
          }
        } catch (error) {
          expect(error).toMatchObject({ name: "GrammarFault", at: expect.any(Number) });
        }
      },
    ),
    { numRuns: 500 },
  );
});

it.each<[string, (size: number) => string]>([
  ["alternatives", (size) => `start: ${'"a" | '.repeat(size)}"b"`],
  [
    "rules, each of which uses the next",
    (size) =>
      `start: r0\n${Array.from({ length: size }, (_, at) => `r${at}: "x" r${at + 1} | "y"\n`).join("")}r${size}: "z"`,
  ],
  [
    "terminals, each of which uses the next",
    (size) => `start: A0\n${Array.from({ length: size }, (_, at) => `A${at}: "x" A${at + 1}\n`).join("")}A${size}: "z"`,
  ],
  ["uses of one rule", (size) => `start: ${"b ".repeat(size)}\nb: "x"`],
  ["backslashes in a regular expression without an end", (size) => `start: /${"\\\\".repeat(size)}`],
  ["open braces in a regular expression", (size) => `start: /${"{1".repeat(size)}/`],
  ["classes", (size) => `start: /${"[^a-z]".repeat(size)}/i`],
  ["quotes", (size) => `start: ${'""'.repeat(size)}"`],
  ["line ends", (size) => `start: "a"${"\n".repeat(size)}|`],
])("reading %s takes work in proportion", async (_, definition) => {
  const work = (size: number) =>
    charactersTouched(() => {
      try {
        const reading = readGrammar(lark(definition(size)));
        if ("rules" in reading) {
          toEbnf(reading);
          toPattern(reading);
        }
      } catch (error) {
        if (!(error instanceof Error) || error.name !== "GrammarFault") throw error;
      }
    });
  expect(await work(4000)).toBeLessThan(5 * (await work(1000)) + 20_000);
});
