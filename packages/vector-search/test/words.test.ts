import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { comparedWords, indexedText, partsByWords, TOKENIZER, termsOf } from "@responses-edge/vector-search";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { codePoint } from "../../../test/code-points.ts";

/** Texts in a real FTS5 table, and which of them a query finds, best first. */
async function searched(texts: readonly string[], queries: readonly string[]): Promise<number[][]> {
  const { QUOTAS } = env as unknown as { QUOTAS: DurableObjectNamespace };
  return runInDurableObject(QUOTAS.getByName(crypto.randomUUID()), (_, { storage: { sql } }) => {
    sql.exec(`CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = "${TOKENIZER}")`);
    texts.forEach((text, index) => {
      sql.exec("INSERT INTO words (rowid, text) VALUES (?, ?)", index, indexedText(text));
    });
    return queries.map((query) => {
      const terms = termsOf(query);
      if (terms.length === 0) return [];
      const rows = sql.exec("SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank, rowid", terms.join(" OR "));
      return [...rows].map(({ rowid }) => Number(rowid));
    });
  });
}

describe("the words of a text", () => {
  it("are compared in the form in which FTS5 compares them", async () => {
    const words =
      `wing wings stall stalled stalling relational relate happy happiness general generalization flies fly agreed agreement
      plastered motoring motor sized size hopping hop falling hissing replacement replace adoption adopt Größe grosse größe naïve naive
      yoga year years rational sensibility sensible probably probable 2024 x86`.split(/\s+/);
    const found = await searched(words, words);
    const formOf = (word: string) => [...comparedWords(word)].join();
    const expected = words.map((one) =>
      [...words.keys()].filter((index) => formOf(words[index] ?? "") === formOf(one)),
    );
    expect(found.map((rows) => rows.toSorted((one, other) => one - other))).toEqual(expected);
  });

  it("are told apart from the others, also where pairs of characters overlap", () => {
    const found = (text: string, words: string[]) =>
      partsByWords(text, words)
        .map((part) => (part.isFound ? `[${part.text}]` : part.text))
        .join("");
    expect(found("The wing stalls.", ["wings", "stalling"])).toBe("The [wing] [stalls].");
    expect(found("東京都の天気", ["東京", "京都"])).toBe("[東京都]の天気");
    expect(found("", ["wing"])).toBe("");
  });
});

describe("the words of a query", () => {
  it("are found in other forms, whatever their case and accents", async () => {
    const texts = ["The wings stalled at low speeds.", "Über die Größe von Flügeln", "nothing of that"];
    const found = await searched(texts, ["stalling WING", "flugeln", "speed of what?"]);
    expect(found).toEqual([[0], [1], [0]]);
  });

  it.each([
    ["Chinese", "机器学习是人工智能的一个分支", "今天天气很好", ["学习", "人工智能", "器"]],
    ["Japanese", "東京タワーは高い建物です", "大阪城を見ました", ["東京", "タワー", "建物"]],
    ["Thai", "ภาษาไทยเขียนไม่เว้นวรรค", "สวัสดีครับ", ["ภาษาไทย", "เว้นวรรค"]],
    ["Hindi", "हिन्दी भाषा में लिखा गया", "आज मौसम अच्छा है", ["भाषा", "हिन्दी"]],
    ["Korean", "한국어 문장을 찾는다", "날씨가 좋다", ["한국어"]],
  ])("are found in %s", async (_, text, other, queries) => {
    expect(await searched([other, text], queries)).toEqual(queries.map(() => [1]));
  });

  it("in a language without spaces and one with them are found side by side", async () => {
    expect(await searched(["使用 FTS5 搜索文本", "use FTS5"], ["FTS5 搜索"])).toEqual([[0, 1]]);
  });

  it("leaves out words that say nothing, unless there are no others", () => {
    expect(termsOf("What is the effect of the wing?")).toEqual(['"effect"', '"wing"']);
    expect(termsOf("to be or not to be")).toEqual(['"to"', '"be"', '"or"', '"not"']);
    expect(termsOf(' -- " * ^ ( ')).toEqual([]);
  });

  it("are words alone, whatever is written: FTS5 takes every query", async () => {
    const piece = fc.oneof(
      fc.string({ unit: codePoint }),
      fc.constantFrom(
        '"',
        "*",
        "^",
        "NEAR(",
        ")",
        "AND",
        "OR NOT",
        "text:",
        "{",
        "}",
        "+",
        "-",
        "\0",
        "\ud800",
        "学",
        "ไท",
      ),
    );
    const queries = fc.sample(
      fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join(" ")),
      300,
    );
    const found = await searched(["a", "NEAR and OR"], queries);
    expect(found).toHaveLength(queries.length);
  });

  it("finds each text by its own words", async () => {
    // SQLite's tables of characters are older than those of JavaScript.
    const letter = fc.constantFrom(..."abcdeéßøłžñαβγωбгдяעבאبتثकखगकिาไทยกขあいアイ学习東京한국1234".normalize("NFC"));
    const text = fc.array(fc.string({ unit: letter, minLength: 1 }), { maxLength: 10 });
    const texts = fc.sample(
      text.map((words) => words.join(" ")),
      300,
    );
    const wordy = texts.filter((text) => termsOf(text).length > 0);
    const found = await searched(wordy, wordy);
    const missed = wordy.filter((_, index) => !found[index]?.includes(index));
    expect(missed).toEqual([]);
  });

  it("are no more than a search can bear", () => {
    const words = Array.from({ length: 10_000 }, (_, index) => `w${index}`);
    expect(termsOf(words.join(" "))).toHaveLength(48);
    expect(termsOf("学".repeat(1_000_000)).length).toBeLessThanOrEqual(48);
    expect(termsOf(words.map((_, index) => String.fromCodePoint(0x4e00 + index)).join("")).length).toBe(48);
  });
});
