import fc from "fast-check";
import { expect, it } from "vitest";

/** The words in which two texts differ, by the page's own module. */

interface Part {
  kind: "same" | "removed" | "added";
  text: string;
}
const module = new URL("../../packages/console/src/word-diff.ts", import.meta.url).href;
const { wordDiff } = (await import(module)) as { wordDiff: (one: string, other: string) => Part[] };

const text = (parts: Part[], without: Part["kind"]) =>
  parts
    .filter(({ kind }) => kind !== without)
    .map((part) => part.text)
    .join("");

it("together with the common words make up both texts", () => {
  const word = fc.constantFrom("a", "b", "the", "Straße", "العربية", " ", "\n", ".", "👋🏽");
  const said = fc.array(word, { maxLength: 60 }).map((words) => words.join(" "));
  fc.assert(
    fc.property(said, said, (one, other) => {
      const parts = wordDiff(one, other);
      expect([text(parts, "added"), text(parts, "removed")]).toEqual([one, other]);
      expect(parts.every((part, index) => part.text !== "" && part.kind !== parts[index - 1]?.kind)).toBe(true);
    }),
  );
});

it("are as few as possible", () => {
  expect(wordDiff("The quick brown fox jumps.", "The slow brown fox jumps high.")).toEqual([
    { kind: "same", text: "The " },
    { kind: "removed", text: "quick" },
    { kind: "added", text: "slow" },
    { kind: "same", text: " brown fox jumps" },
    { kind: "added", text: " high" },
    { kind: "same", text: "." },
  ]);
  expect(wordDiff("same", "same")).toEqual([{ kind: "same", text: "same" }]);
});

it("are the whole middle of texts that are too long to compare", () => {
  const words = (letter: string) => Array.from({ length: 3_000 }, (_, at) => `${letter}${at}`).join(" ");
  expect(wordDiff(`Begin ${words("a")} end`, `Begin ${words("b")} end`).map(({ kind }) => kind)).toEqual([
    ...["same", "removed", "added", "same"],
  ]);
});
