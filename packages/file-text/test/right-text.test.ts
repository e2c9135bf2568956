/// <reference path="./corpus-archive.d.ts" />

import { type TextPage, textOf, UnreadableFile } from "@responses-edge/file-text";
import { describe, expect, it } from "vitest";
import archive from "./corpus.bin";
import { type Case, casesOf, wordsOf } from "./right-text.ts";

/** Files that programs of other authors have written (`dev/quality/corpus`), and the text that a person sees in them. */
const cases = casesOf(new Uint8Array(archive));

/** Gives the words of a file, and which of the sentences that must tell of faults are there. */
async function readCase(bytes: Uint8Array, { filename, mimeType, told }: Case) {
  let pages: TextPage[] = [];
  let error: string | null = null;
  try {
    pages = await Array.fromAsync(textOf(bytes, { filename, mimeType: mimeType ?? undefined }));
  } catch (thrown) {
    if (!(thrown instanceof UnreadableFile)) throw thrown;
    error = thrown.code;
  }
  const lines = pages.flatMap(({ text }) => text.split("\n"));
  const isTold = (line: string) => told.some((sentence) => line.startsWith(sentence));
  return {
    error,
    told: told.filter((sentence) => lines.some((line) => line.startsWith(sentence))),
    words: wordsOf(lines.filter((line) => !isTold(line)).join("\n")).join(" "),
  };
}

describe("all words and numbers of a file are right and in their order, or a fault is told", () => {
  it.each([...new Set(cases.map(({ about }) => about.group))])("%s", async (group) => {
    for (const { about, bytes } of cases.filter((each) => each.about.group === group)) {
      const { words, ...rest } = await readCase(bytes, about);
      expect(rest, about.path).toEqual({ error: about.error, told: about.told });
      if (!about.unsure) expect(words, about.path).toBe(wordsOf(about.text).join(" "));
    }
  });
});
