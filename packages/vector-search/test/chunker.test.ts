import { createTokenizer, type Tokenizer } from "@responses-edge/harmony";
import { type Chunk, Chunker, type ChunkSizes } from "@responses-edge/vector-search";
import fc from "fast-check";
import vocabulary from "gpt-tokenizer/data/o200k_base.tiktoken";
import { beforeAll, describe, expect, it } from "vitest";

let tokenizer: Tokenizer;

beforeAll(() => {
  tokenizer = createTokenizer(vocabulary);
});

interface Page {
  text: string;
  page: number | null;
}

function chunksOf(pages: readonly Page[], sizes: ChunkSizes): Chunk[] {
  const chunker = new Chunker(tokenizer, sizes);
  const chunks = pages.flatMap(({ text, page }) => [...chunker.push(text, page)]);
  return [...chunks, ...chunker.end()];
}

const word = fc.oneof(
  fc.string({ unit: "grapheme", maxLength: 12 }),
  fc.constantFrom(
    "the",
    "wing",
    "stall.",
    "\n",
    "\n\n",
    "Why?",
    "学习。",
    "👩‍👩‍👧",
    "\r\n",
    "   ",
    "a".repeat(400),
    "Ω".repeat(90),
  ),
);
const pages = fc.array(
  fc.array(word, { maxLength: 400, size: "max" }).map((words) => words.join(" ")),
  { maxLength: 5 },
);
const sizes = fc
  .record({ max: fc.integer({ min: 10, max: 200 }), share: fc.double({ min: 0, max: 0.5, noNaN: true }) })
  .map(({ max, share }) => ({ max, overlap: Math.floor(max * share) }));

const bare = (text: string) => text.toWellFormed().replaceAll(/\s/g, "");

describe("chunks of a text", () => {
  it("have all of it, in order, each within its tokens, and overlap", () => {
    fc.assert(
      fc.property(pages, sizes, (texts, given) => {
        const all = texts.map((text, index) => ({ text, page: index + 1 }));
        const chunks = chunksOf(all, given);
        const whole = bare(texts.join(""));
        let end = 0;
        for (const { text, tokens } of chunks) {
          expect(tokens).toBeLessThanOrEqual(given.max);
          const begin = whole.lastIndexOf(bare(text), end);
          expect(begin).toBeGreaterThanOrEqual(0);
          end = Math.max(end, begin + bare(text).length);
        }
        expect(end).toBe(whole.length);
      }),
      { numRuns: 50 },
    );
  });

  it("overlap by no more tokens than asked for", () => {
    const text = Array.from({ length: 3_000 }, (_, index) => `w${index}`).join(" ");
    const chunks = chunksOf([{ text, page: null }], { max: 100, overlap: 40 });
    for (const [index, { text: one }] of chunks.slice(1).entries()) {
      const before = new Set(chunks[index]?.text.split(" "));
      const both = one.split(" ").filter((each) => before.has(each));
      expect(tokenizer.encode(both.join(" ")).length).toBeLessThanOrEqual(41);
      expect(both.length).toBeGreaterThan(5);
    }
    const apart = chunksOf([{ text, page: null }], { max: 100, overlap: 0 });
    expect(apart.map((each) => each.text).join(" ")).toBe(text);
  });

  it("end with paragraphs, or else with sentences, where one ends near by", () => {
    const sentence = "The boundary layer separates from the wing when the angle of attack grows too large. ";
    const ends = chunksOf([{ text: sentence.repeat(100), page: null }], { max: 100, overlap: 20 });
    expect(ends.length).toBeGreaterThan(10);
    expect(ends.filter(({ text }) => !text.endsWith("too large."))).toEqual([]);
    const paragraphs = `${"One of many words here, ".repeat(10)}end\n\n`.repeat(20);
    const cut = chunksOf([{ text: paragraphs, page: null }], { max: 80, overlap: 0 });
    expect(cut.filter(({ text }) => !text.endsWith("end"))).toEqual([]);
  });

  it("know the pages on which they begin and end", () => {
    const [first, second] = ["alpha ".repeat(150), "beta ".repeat(150)];
    const chunks = chunksOf(
      [
        { text: first, page: 1 },
        { text: "", page: 2 },
        { text: second, page: 3 },
      ],
      { max: 100, overlap: 50 },
    );
    for (const { text, page, lastPage } of chunks) {
      expect(page).toBe(text.startsWith("alpha") ? 1 : 3);
      expect(lastPage).toBe(text.endsWith("beta") ? 3 : 1);
    }
    expect(chunksOf([{ text: "a", page: null }], { max: 100, overlap: 0 })).toEqual([
      { text: "a", tokens: 1, page: null, lastPage: null },
    ]);
  });

  it("are none of white space", () => {
    expect(chunksOf([{ text: " \n\n ".repeat(5_000), page: 1 }], { max: 100, overlap: 10 })).toEqual([]);
    expect(chunksOf([], { max: 100, overlap: 0 })).toEqual([]);
  });

  it("are made in a time that grows with the text alone", () => {
    for (const text of ["\n ".repeat(200_000), ".''".repeat(100_000), "x".repeat(400_000), "😀".repeat(50_000)]) {
      expect(chunksOf([{ text, page: null }], { max: 100, overlap: 50 }).length).toBeGreaterThanOrEqual(0);
    }
  });
});
