import {
  lengthWithoutRepetition,
  type RepeatedKind,
  RepetitionWatch,
  repetitionAtEnd,
} from "@responses-edge/turn/repetition";
import { describe, expect, it } from "vitest";

/** Repetition at the end of a text, and texts that only look like it. */

/** The number of characters after which a text is taken for a repetition; undefined if it never is. */
function foundAfter(kind: RepeatedKind, text: string, { isPlain = true, delta = 5 } = {}): number | undefined {
  const watch = new RepetitionWatch(isPlain);
  for (let at = 0; at < text.length; at += delta) {
    if (watch.read(kind, text.slice(at, at + delta))) return Math.min(text.length, at + delta);
  }
  return undefined;
}

/** A text of words without any repetition. */
function prose(length: number, seed = 1): string {
  let state = seed;
  let text = "";
  while (text.length < length) {
    state = (state * 48_271) % 2_147_483_647;
    text += `${state.toString(36)}${state % 11 === 0 ? ".\n" : " "}`;
  }
  return text.slice(0, length);
}

const PERIODS = [1, 2, 3, 7, 20, 52, 100, 333, 1_000, 2_000];

describe("a loop", () => {
  it.each(PERIODS)("of %d characters is found after a known length", (period) => {
    const unit = prose(period, period + 5);
    const before = prose(3_000);
    const text = before + unit.repeat(Math.ceil(40_000 / period));
    const hasWords = new Set(unit.match(/[a-z]/g)).size >= 3;
    const least = { thought: hasWords ? 1_536 : 6_144, answer: hasWords ? 4_096 : 12_288 };
    const count = { thought: 4, answer: 6 };
    for (const kind of ["thought", "answer"] as const) {
      const after = (foundAfter(kind, text) ?? Number.POSITIVE_INFINITY) - before.length;
      const needed = Math.max(least[kind], period * count[kind]);
      expect(after).toBeGreaterThanOrEqual(needed);
      // It is looked for once in 1024 characters.
      expect(after).toBeLessThanOrEqual(needed + 1_024 + 2 * 64);
    }
  });

  it("is found for any size of the deltas", () => {
    const text = prose(500) + "So it goes on and on. ".repeat(1_000);
    for (const delta of [1, 3, 40, 1_000, 5_000, text.length])
      expect(foundAfter("answer", text, { delta })).toBeDefined();
  });

  it("of white space is found in a block of code, and in an answer for programs", () => {
    expect(foundAfter("answer", `\`\`\`json\n{"a":${"\n".repeat(9_000)}`)).toBeLessThan(6_000);
    expect(foundAfter("answer", `{"a":${" \n\t".repeat(3_000)}`, { isPlain: false })).toBeLessThan(6_000);
  });

  it("of whole blocks of code is found", () => {
    const unit = `\`\`\`python\n${prose(300)}\n\`\`\`\nThat fails, so I try again:\n`;
    expect(foundAfter("thought", unit.repeat(40))).toBeDefined();
  });
});

describe("a text that is no loop", () => {
  const numbers = Array.from({ length: 5_000 }, (_, index) => index);
  it.each<[string, string]>([
    ["counts", numbers.map((each) => `n${each} `).join("")],
    ["lists numbered lines with the same words", numbers.map((each) => `${each}. Call the customer back.\n`).join("")],
    ["has a table with equal rows", `| a | b |\n|---|---|\n${"| yes, of course | no |\n".repeat(2_000)}`],
    ["has code with equal lines", `\`\`\`c\n${"  buffer[i++] = next(stream);\n".repeat(2_000)}\`\`\`\n`],
    ["has code within a list", `1. Like so:\n   ~~~\n${"   x = step(x)\n".repeat(2_000)}   ~~~\n`],
    ["has rulers", `${"=".repeat(80)}\nA\n${"-".repeat(80)}\n`.repeat(15)],
    ["has a grid of zeros", `Grid:\n${`${"0 ".repeat(30)}\n`.repeat(60)}Done.`],
    [
      "has a refrain",
      Array.from({ length: 8 }, (_, verse) => prose(400, verse + 9) + "Hey ho, the wind and the rain. ".repeat(4)).join(
        "\n",
      ),
    ],
    ["says a line a hundred times, as it was asked to", "I shall not talk in class. ".repeat(100)],
    ["has a picture in base64", `data:image/png;base64,${"A".repeat(9_000)}`],
  ])("%s", (_, text) => {
    expect(foundAfter("answer", text)).toBeUndefined();
  });

  it("repeats in a format for programs", () => {
    expect(foundAfter("answer", `[${'{"id":null,"name":""},'.repeat(2_000)}`, { isPlain: false })).toBeUndefined();
  });
});

describe("the repetitions at a text's end", () => {
  it("are left out after the first one, and the end of its line or sentence", () => {
    const line = "Wait, let me look again. ";
    for (const [before, kept] of [
      ["Two cases. ", `Two cases. ${line}`],
      ["", line],
      ["It is open", `It is open${line}`],
    ] as const) {
      const text = before + line.repeat(50);
      expect(text.slice(0, lengthWithoutRepetition(text))).toBe(kept);
    }
    const words = "la di da ";
    expect(lengthWithoutRepetition(words.repeat(100))).toBe(words.length);
  });

  it("are found from two on", () => {
    const unit = prose(200);
    expect(lengthWithoutRepetition(`Hm. ${unit}${unit}`)).toBeGreaterThan(200);
    expect(lengthWithoutRepetition(`Hm. ${unit}${unit}`)).toBeLessThan(405);
    expect(lengthWithoutRepetition(prose(20_000))).toBe(20_000);
    expect(lengthWithoutRepetition("short")).toBe(5);
  });

  it("cost a bounded number of comparisons where the end occurs everywhere", () => {
    // The end of the text occurs at many places, and no period fits.
    const end = "x".repeat(70);
    const text = Array.from({ length: 200 }, (_, index) => end + "y".repeat(index % 7) + index).join("") + end;
    expect(repetitionAtEnd(text.slice(-16_384), { count: 4, length: 1_536 })).toBeUndefined();
  });
});
