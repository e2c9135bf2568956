import { LongWork } from "@responses-edge/bounded-io/long-work";
import { drawPages, type TextPage, textOf } from "@responses-edge/file-text";
import { expect, it } from "vitest";
import { contentPdf, streamOf, textPdf } from "./corpus.ts";

const MEMORY = 64 * 1024 * 1024;
const draw = (bytes: Uint8Array, pages: number[], maxMemory = MEMORY) =>
  Array.fromAsync(drawPages(bytes, { pages, edge: 256, maxMemory }, new LongWork("")));

/** The lengths of the pictures, and null for a page without one. */
const lengths = async (...args: Parameters<typeof draw>) =>
  (await draw(...args)).map(({ page, jpeg }) => [page, jpeg?.length ?? null]);

it("a page's picture is a JPEG of the same bytes each time, and shows its text in a font that the file does not contain", async () => {
  const words = Array(40).fill("Some words of a page").join("\n");
  const [first, second, blank] = [textPdf([words]), textPdf([words]), textPdf([""])];
  const [shown] = await draw(first, [1]);
  expect(shown?.jpeg).toMatch(/^\/9j\//);
  expect(await draw(second, [1])).toEqual([shown]);
  const [empty] = await draw(blank, [1]);
  expect(shown?.jpeg?.length).toBeGreaterThan(2 * (empty?.jpeg?.length ?? 0));
});

it("a picture leaves no `location` behind, by which other packages would fail to load", async () => {
  expect(await lengths(textPdf(["Words"]), [1])).toEqual([[1, expect.any(Number)]]);
  expect("location" in globalThis).toBe(false);
});

it("a page that is not there, or whose file is damaged, has none, and the pages after it have theirs", async () => {
  expect(await lengths(textPdf(["One", "Two"]), [3, 2])).toEqual([
    [3, null],
    [2, expect.any(Number)],
  ]);
  expect(await lengths(new TextEncoder().encode("%PDF-1.7\nnothing"), [1, 2])).toEqual([
    [1, null],
    [2, null],
  ]);
});

it("a page that needs more memory than it may take has none", async () => {
  const file = textPdf(["One"]);
  const padded = new Uint8Array(30 * 1024 * 1024);
  padded.set(file);
  expect(await lengths(padded, [1], 20 * 1024 * 1024)).toEqual([[1, null]]);
  expect(await lengths(file, [1], 20 * 1024 * 1024)).toEqual([[1, expect.any(Number)]]);
});

it("a page's text says what a picture would add to it", async () => {
  const image = "BI /W 1 /H 1 /CS /G /BPC 8 ID a EI ";
  const words = "BT /F1 12 Tf (Words) Tj ET";
  const lines = `0 0 m ${"9 9 l ".repeat(100)} S `;
  const cases: [content: string, picture: TextPage["picture"]][] = [
    [image, "needed"],
    [lines, "needed"],
    [image + words, "useful"],
    [lines + words, "useful"],
    [`0 0 m 9 9 l S 0 0 9 9 re f ${words}`, undefined],
  ];
  for (const [content, picture] of cases) {
    const seen: TextPage[] = [];
    const pages = textOf(contentPdf(streamOf(new TextEncoder().encode(content))), { filename: "a.pdf" });
    // A file without any text is refused after its pages.
    await Array.fromAsync(pages, (page) => seen.push(page)).catch(() => undefined);
    expect(seen[0]?.picture, content).toBe(picture);
  }
});
