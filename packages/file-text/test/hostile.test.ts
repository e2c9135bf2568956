import { LongWork } from "@responses-edge/bounded-io/long-work";
import { type TextLimits, type TextPage, textOf, UnreadableFile } from "@responses-edge/file-text";
import fc from "fast-check";
import { strToU8 } from "fflate";
import { describe, expect, it } from "vitest";
import { archive, contentPdf, docx, join, paragraph, pdfOf, pptx, streamOf, textPdf, xlsx, zlib } from "./corpus.ts";

async function read(bytes: Uint8Array, limits: Partial<TextLimits> = {}, filename = "a"): Promise<TextPage[]> {
  return Array.fromAsync(textOf(bytes, { filename }, limits));
}

/** Why a file is not read; fails where it is. */
async function refusal(bytes: Uint8Array, limits: Partial<TextLimits> = {}): Promise<UnreadableFile> {
  const error: unknown = await read(bytes, limits).then(
    (pages) => expect.fail(`read: ${JSON.stringify(pages).slice(0, 200)}`),
    (error: unknown) => error,
  );
  if (!(error instanceof UnreadableFile)) throw error;
  return error;
}

const FINE = textPdf(["fine"]);

const MIB = 1024 * 1024;
const zeros = (count: number) => new Uint8Array(count);
const spaces = (count: number) => new Uint8Array(count).fill(0x20);

/** A local header and the bytes of an entry, and its row of the directory with another place in it, where one is given. */
function overlapping(): Uint8Array {
  const bytes = archive({ "word/document.xml": "<a/>", "word/footnotes.xml": "<b/>" });
  const view = new DataView(bytes.buffer);
  const directory = view.getUint32(bytes.length - 22 + 16, true);
  const second = directory + 46 + view.getUint16(directory + 28, true);
  view.setUint32(second + 42, view.getUint32(directory + 42, true), true);
  return bytes;
}

/** Files without readable text, and their errors. */
const REFUSED: [what: string, file: () => Uint8Array, limits: Partial<TextLimits>, code: string, message: RegExp][] = [
  ["more bytes than may be", () => spaces(2000), { maxBytes: 1999 }, "too_large", /more than 1999 bytes/],
  ["more text than may be", () => spaces(2000), { maxTextBytes: 1999 }, "too_large", /1999 bytes of text/],
  [
    "more text than may be, in characters of three bytes",
    () => strToU8("€".repeat(700)),
    { maxTextBytes: 2000 },
    "too_large",
    /text/,
  ],
  ["zeros", () => zeros(10_000), {}, "unsupported_file", /neither text/],
  ["a program", () => strToU8("\x7fELF\x02\x01\x01\0\0", true), {}, "unsupported_file", /neither text/],
  ["an image", () => strToU8("\x89PNG\r\n\x1a\n\0\0", true), {}, "unsupported_file", /input_image/],
  ["an old Office file", () => strToU8("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", true), {}, "unsupported_file", /old Office/],
  ["an archive of something else", () => archive({ "a.txt": "text" }), {}, "unsupported_file", /archive/],
  ["an archive in an archive", () => archive({ "a.docx": docx(paragraph("x")) }), {}, "unsupported_file", /archive/],

  // Archives that grow.
  [
    "a document that expands a thousandfold",
    () => docx(" ".repeat(20 * MIB)),
    { maxExpandedBytes: MIB },
    "too_large",
    /when it is expanded/,
  ],
  [
    "a document whose text does",
    () => docx(paragraph("x".repeat(20 * MIB))),
    { maxTextBytes: MIB },
    "too_large",
    /bytes of text/,
  ],
  ["parts that share bytes", overlapping, {}, "invalid_file", /overlap/],
  [
    "many entries",
    () => archive(Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`${i}`, ""]))),
    { maxEntries: 299 },
    "too_large",
    /299 entries/,
  ],
  [
    "many sheets",
    () => xlsx(Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`s${i}`, ""]))),
    { maxPages: 29 },
    "too_large",
    /29 pages/,
  ],
  [
    "one shared string in a million cells",
    () => xlsx({ s: '<row><c t="s"><v>0</v></c></row>'.repeat(100_000) }, ["x".repeat(30_000)]),
    {},
    "too_large",
    /bytes of text/,
  ],
  [
    "a cell in the last column of every row",
    () => xlsx({ s: '<row><c r="XFD1"><v>0</v></c></row>'.repeat(10_000) }),
    {},
    "too_large",
    /bytes of text/,
  ],

  // XML that grows, or never ends.
  ["deep XML", () => docx("<w:p>".repeat(300) + "</w:p>".repeat(300)), {}, "too_large", /256 elements deep/],
  ["XML that is never closed", () => docx("<w:p>"), {}, "invalid_file", /well-formed/],
  ["a tag that is never closed", () => docx(`<w:p ${"a".repeat(MIB)}`), {}, "invalid_file", /well-formed/],
  ["a comment that is never closed", () => docx(`<!-- ${"a".repeat(MIB)}`), {}, "invalid_file", /well-formed/],
  [
    "a billion laughs",
    () =>
      archive({
        "word/document.xml": `<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><w:document>&b;</w:document>`,
      }),
    {},
    "invalid_file",
    /document type or entities/,
  ],

  // PDF.
  ["a PDF without text", () => textPdf(["", "", ""]), {}, "unsupported_file", /no text.*scanner/],
  ["a PDF with nothing in it", () => strToU8("%PDF-1.7\n"), {}, "invalid_file", /PDF is damaged/],
  [
    "more pages than may be",
    () => textPdf(Array.from({ length: 12 }, () => "x")),
    { maxPages: 11 },
    "too_large",
    /11 pages/,
  ],
  [
    "more text of a PDF than may be",
    () => textPdf(Array.from({ length: 30 }, () => "forty characters, of which each counts one")),
    { maxTextBytes: 1000 },
    "too_large",
    /bytes of text/,
  ],
  [
    "a content stream that expands a thousandfold",
    () => contentPdf(streamOf(zlib(spaces(16 * MIB)), "/Filter /FlateDecode")),
    { maxExpandedBytes: 8 * MIB },
    "too_large",
    /when it is expanded/,
  ],
  [
    "a stream that expands twice",
    () => contentPdf(streamOf(zlib(zlib(spaces(16 * MIB))), "/Filter [/FlateDecode /FlateDecode]")),
    { maxExpandedBytes: 8 * MIB },
    "too_large",
    /when it is expanded/,
  ],
  [
    "a stream that expands a thousandfold behind other filters",
    () => contentPdf(streamOf(strToU8(`${zlib(spaces(16 * MIB)).toHex()}>`), "/Filter [/AHx /Fl]")),
    { maxExpandedBytes: 8 * MIB },
    "too_large",
    /when it is expanded/,
  ],
  [
    "forms that draw ten others each",
    () =>
      contentPdf(
        streamOf(strToU8("/X0 Do")),
        `/XObject << /X0 6 0 R >>`,
        Array.from({ length: 12 }, (_, level) =>
          streamOf(
            strToU8(level === 11 ? "BT /F1 1 Tf (x) Tj ET" : "/Y Do ".repeat(10)),
            `/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /Font << /F1 3 0 R >> /XObject << /Y ${7 + level} 0 R >> >>`,
          ),
        ),
      ),
    { maxPageTokens: 200_000 },
    "too_large",
    /too much work/,
  ],
  [
    "a page of a million operators",
    () => contentPdf(streamOf(zlib(strToU8("q Q ".repeat(MIB))), "/Filter /FlateDecode")),
    { maxPageTokens: 500_000 },
    "too_large",
    /too much work/,
  ],
  [
    "a character map of all codes there are",
    () =>
      pdfOf([
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        "<< /Type /Font /Subtype /Type0 /BaseFont /F /Encoding /Identity-H /ToUnicode 6 0 R /DescendantFonts [<< /Type /Font /Subtype /CIDFontType2 /BaseFont /F /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>] >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Resources << /Font << /F1 3 0 R >> >> /Contents 5 0 R >>",
        streamOf(strToU8("BT /F1 9 Tf <0001> Tj ET")),
        streamOf(
          strToU8(
            `begincmap 1 begincodespacerange <00000000> <ffffffff> endcodespacerange ${"1 beginbfrange <00000000> <00fffffe> <0041> endbfrange ".repeat(50)} endcmap`,
          ),
        ),
      ]),
    {},
    "too_large",
    /too much work/,
  ],
];

describe("a file that is not read", () => {
  it.each(REFUSED)("%s", async (_, file, limits, code, message) => {
    const error = await refusal(file(), limits);
    expect(error.message).toMatch(message);
    expect(error.code).toBe(code);
    // The reader is there for the next one.
    expect(await read(FINE)).toEqual([{ page: 1, text: "fine" }]);
  });
});

describe("a PDF with misleading pages", () => {
  const page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>";
  it.each<[what: string, objects: string[]]>([
    ["a page tree that is its own child", ["<< /Type /Pages /Kids [2 0 R] /Count 5 >>"]],
    [
      "pages that are each other's children",
      ["<< /Type /Pages /Kids [3 0 R] /Count 5 >>", "<< /Type /Pages /Kids [2 0 R] /Count 5 >>"],
    ],
    ["a million pages announced", ["<< /Type /Pages /Kids [3 0 R] /Count 1000000 >>", page]],
    ["less than no pages", ["<< /Type /Pages /Kids [3 0 R] /Count -7 >>", page]],
    ["a page a million times", [`<< /Type /Pages /Kids [${"3 0 R ".repeat(100_000)}] /Count 100000 >>`, page]],
    ["no pages", ["null"]],
    [
      "a page tree a thousand deep",
      Array.from(
        { length: 3000 },
        (_, at) => `<< /Type /Pages /Parent ${at + 1} 0 R /Kids [${at + 3} 0 R] /Count 1 >>`,
      ).concat(page),
    ],
  ])("%s", async (_, objects) => {
    expect((await refusal(pdfOf(["<< /Type /Catalog /Pages 2 0 R >>", ...objects]))).message).not.toBe("");
  });

  it("arrays nested by the hundred thousand", async () => {
    const nested = `${"[".repeat(200_000)}${"]".repeat(200_000)}`;
    await refusal(pdfOf(["<< /Type /Catalog /Pages 2 0 R >>", nested]));
    await refusal(contentPdf(streamOf(strToU8(nested))));
  });
});

it("a PDF whose reading was given up keeps no other one waiting", async () => {
  // As where a platform ends a request: the work that would go on, once the file is open, never does.
  let slices = 0;
  const never = new (class extends LongWork {
    override spend() {
      slices += 1;
      return slices === 1 ? undefined : new Promise<void>(() => {});
    }
  })("left");
  void Array.fromAsync(textOf(FINE, { filename: "a" }, {}, never));
  while (slices < 2) await new Promise((resolve) => setTimeout(resolve));
  expect(await read(FINE)).toEqual([{ page: 1, text: "fine" }]);
}, 30_000);

it("PDFs that are read at the same time have a budget each", async () => {
  const limits = { maxPageTokens: 500 };
  const pages = ["one", "two", "three", "four"];
  const costly = contentPdf(streamOf(zlib(strToU8("q Q ".repeat(100_000))), "/Filter /FlateDecode"));
  const [first, second, third] = await Promise.allSettled([
    read(textPdf(pages), limits),
    read(costly, limits),
    read(textPdf(pages), limits),
  ]);
  const value = pages.map((text, index) => ({ page: index + 1, text }));
  expect([first, third]).toEqual([1, 2].map(() => ({ status: "fulfilled", value })));
  expect(second).toMatchObject({ status: "rejected", reason: { code: "too_large" } });
});

/** One file of each format, small enough to be read often. */
const FILES: readonly [format: string, file: Uint8Array][] = [
  ["pdf", textPdf(["One", "Two"])],
  ["pdf, not compressed", textPdf(["One", "Two"], { isCompressed: false })],
  ["docx", docx(paragraph("Title", "Heading1") + paragraph("&#65; text"))],
  ["xlsx", xlsx({ One: '<row><c r="A1" t="s"><v>0</v></c></row>' }, ["text"])],
  ["pptx", pptx(["one", "two"])],
  ["html", strToU8("<!doctype html><title>T</title><p>text<table><td>a")],
  ["text", strToU8("naïve text, 日本")],
];

/** Reads arbitrary bytes. Gives text, or a refusal with its reason. */
it("a PDF with several damaged pages leaves no unhandled rejection", async () => {
  const left: unknown[] = [];
  const note = (event: PromiseRejectionEvent) => left.push(event.reason);
  addEventListener("unhandledrejection", note);
  try {
    const text = new TextDecoder("latin1").decode(textPdf(["one", "two", "three"]));
    const damaged = text.replace("4 0 obj", "4 0 xyz").replace("6 0 obj", "6 0 xyz").replace("8 0 obj", "8 0 xyz");
    await readOrRefuse(strToU8(damaged, true));
    // A rejection is told of once the tasks of its turn have run.
    await new Promise((resolve) => setTimeout(resolve));
    expect(left).toEqual([]);
  } finally {
    removeEventListener("unhandledrejection", note);
  }
});

async function readOrRefuse(bytes: Uint8Array): Promise<void> {
  const limits = { maxTextBytes: MIB, maxExpandedBytes: 4 * MIB, maxPageTokens: 100_000, maxPages: 50 };
  try {
    for (const { text } of await read(bytes, limits)) expect(text.isWellFormed()).toBe(true);
  } catch (error) {
    if (!(error instanceof UnreadableFile)) throw error;
    expect(error.message).not.toBe("");
  }
}

describe.each(FILES)("%s", (_, file) => {
  it("cut off anywhere is text, or refused", async () => {
    const step = Math.max(1, Math.floor(file.length / 30));
    for (let length = 0; length < file.length; length += step) await readOrRefuse(file.subarray(0, length));
  });

  it("with bytes changed is text, or refused", async () => {
    const change = fc.tuple(fc.nat(file.length - 1), fc.uint8Array({ minLength: 1, maxLength: 8 }));
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 6 }), async (changes) => {
        const changed = file.slice();
        for (const [at, bytes] of changes) changed.set(bytes.subarray(0, changed.length - at), at);
        await readOrRefuse(changed);
      }),
      { numRuns: 30 },
    );
  });

  it("with parts moved, doubled or left out is text, or refused", async () => {
    const cut = fc.tuple(fc.nat(file.length), fc.nat(file.length));
    await fc.assert(
      fc.asyncProperty(fc.array(cut, { minLength: 1, maxLength: 4 }), async (cuts) => {
        await readOrRefuse(join(cuts.map(([from, to]) => file.subarray(Math.min(from, to), Math.max(from, to)))));
      }),
      { numRuns: 20 },
    );
  });
});
