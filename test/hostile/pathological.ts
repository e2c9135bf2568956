import { deflateSync } from "node:zlib";
import {
  archive,
  contentPdf,
  docx,
  paragraph,
  pdfOf,
  pptx,
  streamOf,
  xlsx,
} from "../../packages/file-text/test/corpus.ts";

/** Files that are small, and cost a reader much: operators, fonts, images, streams and cross-references of PDFs; HTML, XML, ZIP, office. */

export interface Pathological {
  /** The kind of file, and the number of repetitions. */
  name: string;
  filename: string;
  bytes: () => Uint8Array;
}

/** The sizes in which each kind comes. */
const COUNTS = [100, 3_000, 100_000] as const;

const text = (content: string) => Buffer.from(content);
const flate = (content: string | Buffer) =>
  streamOf(deflateSync(typeof content === "string" ? text(content) : content), "/Filter /FlateDecode");

/** Content of a page, by the number of repetitions. */
const OPERATORS: Record<string, (n: number) => string> = {
  "unclosed q": (n) => "q ".repeat(n),
  "unopened Q": (n) => "Q ".repeat(n),
  "q and Q": (n) => "q Q ".repeat(n),
  "nested q and cm": (n) => `${"q 1 0 0 1 1 1 cm ".repeat(n)}BT /F1 9 Tf (x) Tj ET`,
  "unclosed BT": (n) => "BT /F1 9 Tf (x) Tj ".repeat(n),
  fonts: (n) => `BT ${"/F1 9 Tf ".repeat(n)}(x) Tj ET`,
  "unknown fonts": (n) => `BT ${Array.from({ length: n }, (_, i) => `/G${i} 9 Tf (x) Tj `).join("")}ET`,
  letters: (n) => `BT /F1 9 Tf ${"(x) Tj ".repeat(n)}ET`,
  "letters apart": (n) => `BT /F1 9 Tf [${"(x) -500 ".repeat(n)}] TJ ET`,
  "an empty TJ": (n) => `BT /F1 9 Tf ${"[] TJ ".repeat(n)}ET`,
  lines: (n) => `BT /F1 9 Tf 9 TL ${"(x) ' ".repeat(n)}ET`,
  places: (n) => `BT /F1 9 Tf ${"1 1 Td (x) Tj ".repeat(n)}ET`,
  matrices: (n) => `BT /F1 9 Tf ${"1 0 0 1 5 5 Tm (x) Tj ".repeat(n)}ET`,
  "marked content": (n) => "/Span << /ActualText (x) >> BDC ".repeat(n),
  paths: (n) => `0 0 m ${"1 1 l 2 2 3 3 4 4 c ".repeat(n)} S`,
  clips: (n) => "0 0 9 9 re W n ".repeat(n),
  colours: (n) => "/Pattern cs /P1 scn 1 0 0 rg ".repeat(n),
  "graphics states": (n) => "/GS1 gs ".repeat(n),
  "unknown operators": (n) => "foo 1 2 bar ".repeat(n),
  "nested arrays": (n) => `${"[".repeat(n)}${"]".repeat(n)} TJ`,
  "nested dictionaries": (n) => `/A ${"<< /A ".repeat(n)}${">> ".repeat(n)} BDC`,
  "a long number": (n) => `${"9".repeat(n)} 0 Td`,
  "a long string": (n) => `BT /F1 9 Tf (${"x".repeat(n)}) Tj ET`,
  "an unclosed string": (n) => `BT /F1 9 Tf (${"(".repeat(n)} Tj ET`,
  "a long name": (n) => `/${"x".repeat(n)} gs`,
  "inline images": (n) => "BI /W 1 /H 1 /BPC 8 /CS /G ID x EI ".repeat(n),
  "an unended inline image": (n) => `BI /W 9 /H 9 /BPC 8 /CS /G ID ${"E".repeat(n)}`,
};

/** Forms, fonts, images and streams beside the content. */
const RESOURCES: Record<string, (n: number) => Uint8Array> = {
  "a form that contains itself": (n) =>
    contentPdf(flate("/X1 Do ".repeat(Math.min(n, 1_000))), "/XObject << /X1 6 0 R >>", [
      streamOf(
        text("/X1 Do"),
        "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X1 6 0 R >> >>",
      ),
    ]),
  "forms that double": (n) => {
    const depth = Math.min(30, Math.ceil(Math.log2(n) + 3));
    const form = (next: number) =>
      streamOf(
        text(next < 6 + depth ? "/N Do /N Do" : "BT /F1 9 Tf (x) Tj ET"),
        `/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /N ${next} 0 R >> /Font << /F1 3 0 R >> >>`,
      );
    const forms = Array.from({ length: depth }, (_, index) => form(7 + index));
    return contentPdf(flate("/X1 Do"), "/XObject << /X1 6 0 R >>", forms);
  },
  "a font with many widths": (n) =>
    contentPdf(flate("BT /F2 9 Tf (x) Tj ET"), "/Font << /F2 6 0 R >>", [
      `<< /Type /Font /Subtype /TrueType /BaseFont /A /FirstChar 0 /LastChar 255 /Widths [${"500 ".repeat(n)}] >>`,
    ]),
  "a font with many differences": (n) =>
    contentPdf(flate("BT /F2 9 Tf (x) Tj ET"), "/Font << /F2 6 0 R >>", [
      `<< /Type /Font /Subtype /Type1 /BaseFont /A /Encoding << /Differences [0 ${"/a ".repeat(n)}] >> >>`,
    ]),
  "a font of glyphs that write themselves": (n) =>
    contentPdf(flate("BT /F2 9 Tf (a) Tj ET"), "/Font << /F2 6 0 R >>", [
      "<< /Type /Font /Subtype /Type3 /FontBBox [0 0 9 9] /FontMatrix [1 0 0 1 0 0] /CharProcs << /a 7 0 R >> /Encoding << /Differences [97 /a] >> /FirstChar 97 /LastChar 97 /Widths [9] /Resources << /Font << /F2 6 0 R >> >> >>",
      streamOf(text("BT /F2 9 Tf (a) Tj ET ".repeat(Math.min(n, 3_000)))),
    ]),
  "a table of characters": (n) =>
    contentPdf(flate("BT /F2 9 Tf (x) Tj ET"), "/Font << /F2 6 0 R >>", [
      "<< /Type /Font /Subtype /Type1 /BaseFont /A /ToUnicode 7 0 R >>",
      flate(`begincmap ${"1 beginbfrange <00> <ff> <0041> endbfrange ".repeat(n)} endcmap`),
    ]),
  "a wide range of characters": (n) =>
    contentPdf(flate("BT /F2 9 Tf (x) Tj ET"), "/Font << /F2 6 0 R >>", [
      "<< /Type /Font /Subtype /Type0 /BaseFont /A /Encoding /Identity-H /DescendantFonts [8 0 R] /ToUnicode 7 0 R >>",
      flate(`begincmap ${"1 beginbfrange <00000000> <0fffffff> <0041> endbfrange ".repeat(Math.min(n, 300))} endcmap`),
      "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /A /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>",
    ]),
  "an image of many pixels": (n) =>
    contentPdf(flate("/I Do"), "/XObject << /I 6 0 R >>", [
      streamOf(
        deflateSync(Buffer.alloc(1_000)),
        `/Type /XObject /Subtype /Image /Width ${n} /Height ${n} /BitsPerComponent 8 /ColorSpace /DeviceRGB /Filter /FlateDecode`,
      ),
    ]),
  "filters upon filters": (n) => {
    let content: Buffer = Buffer.from("BT /F1 9 Tf (x) Tj ET");
    const depth = Math.min(n, 60);
    for (let index = 0; index < depth; index += 1) content = deflateSync(content);
    return contentPdf(streamOf(content, `/Filter [${"/FlateDecode ".repeat(depth)}]`));
  },
  "zeros upon zeros": (n) =>
    contentPdf(streamOf(deflateSync(deflateSync(Buffer.alloc(n * 1_000))), "/Filter [/FlateDecode /FlateDecode]")),
  "hexadecimal digits": (n) => contentPdf(streamOf(text(`${"20".repeat(n)}>`), "/Filter /ASCIIHexDecode")),
  "base 85": (n) => contentPdf(streamOf(text(`${"z".repeat(n)}~>`), "/Filter /ASCII85Decode")),
  "runs of bytes": (n) =>
    contentPdf(
      streamOf(Buffer.concat(Array.from({ length: n }, () => Buffer.from([129, 32]))), "/Filter /RunLengthDecode"),
    ),
  "predicted rows": (n) =>
    contentPdf(
      streamOf(
        deflateSync(Buffer.alloc(n)),
        `/Filter /FlateDecode /DecodeParms << /Predictor 15 /Columns ${n * 1_000} /Colors 4 >>`,
      ),
    ),
  "a broken stream": (n) => contentPdf(streamOf(Buffer.alloc(n, 0xff), "/Filter /FlateDecode")),
};

const page = (contents: string, more = "") =>
  `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents ${contents} ${more} >>`;

/** Page trees, objects and cross-references. */
const STRUCTURES: Record<string, (n: number) => Uint8Array> = {
  "pages that contain themselves": () =>
    pdfOf(["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 1000000 >>"]),
  "pages within pages": (n) => {
    const depth = Math.min(n, 3_000);
    const nodes = Array.from(
      { length: depth },
      (_, at) => `<< /Type /Pages /Kids [${at + 3} 0 R] /Count 1 /Parent ${at + 1} 0 R >>`,
    );
    return pdfOf(["<< /Type /Catalog /Pages 2 0 R >>", ...nodes, page(`${depth + 3} 0 R`), streamOf(text("q Q"))]);
  },
  "one page many times": (n) =>
    pdfOf([
      "<< /Type /Catalog /Pages 2 0 R >>",
      `<< /Type /Pages /Kids [${"3 0 R ".repeat(n)}] /Count ${n} >>`,
      page("4 0 R"),
      streamOf(text("BT ET")),
    ]),
  "a count that is not true": (n) =>
    pdfOf([
      "<< /Type /Catalog /Pages 2 0 R >>",
      `<< /Type /Pages /Kids [3 0 R] /Count ${n}000000 >>`,
      page("4 0 R"),
      streamOf(text("q")),
    ]),
  "many content streams": (n) =>
    pdfOf([
      "<< /Type /Catalog /Pages 2 0 R >>",
      "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
      page(`[${"4 0 R ".repeat(n)}]`),
      streamOf(text("q Q")),
    ]),
  "references in a circle": () =>
    pdfOf(["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids 3 0 R /Count 1 >>", "4 0 R", "3 0 R"]),
  "many annotations": (n) =>
    pdfOf([
      "<< /Type /Catalog /Pages 2 0 R >>",
      "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
      page("4 0 R", `/Annots [${"5 0 R ".repeat(n)}]`),
      streamOf(text("q Q")),
      "<< /Type /Annot /Subtype /FreeText /Rect [0 0 9 9] /Contents (x) >>",
    ]),
  "no cross-references, and many objects": (n) =>
    text(`%PDF-1.7\n${"1 0 obj\n<< /Type /Catalog >>\nendobj\n".repeat(n)}`),
  "a cross-reference to itself": () =>
    text("%PDF-1.7\nxref\n0 1\n0000000000 65535 f \ntrailer\n<< /Size 1 /Root 1 0 R /Prev 9 >>\nstartxref\n9\n%%EOF"),
  "objects without an end": (n) => text(`%PDF-1.7\n${"1 0 obj << ".repeat(n)}`),
  "a long header": (n) => text(`${"%".repeat(n)}\n%PDF-1.7\n`),
};

const html = (body: string) => text(`<!doctype html><html><body>${body}</body></html>`);
const XML_HEAD = '<?xml version="1.0"?>';

/** Files of text, markup and archives. */
const OTHERS: Record<string, [filename: string, bytes: (n: number) => Uint8Array]> = {
  "nested elements": ["a.html", (n) => html("<div>".repeat(n))],
  "nested tables": ["a.html", (n) => html("<table><tr><td>".repeat(n))],
  "misnested elements": ["a.html", (n) => html("<b><i></b></i><p>".repeat(n))],
  entities: ["a.html", (n) => html("&amp;&#65;&notit;".repeat(n))],
  attributes: ["a.html", (n) => html(`<p ${Array.from({ length: n }, (_, i) => `a${i}="x"`).join(" ")}>x</p>`)],
  "unclosed comments": ["a.html", (n) => html("<!-- ".repeat(n))],
  "unclosed tags": ["a.html", (n) => html("<".repeat(n))],
  "scripts in scripts": ["a.html", (n) => html("<script><!--<script>".repeat(n))],
  "lists in lists": ["a.html", (n) => html("<ul><li>x".repeat(n))],
  "nested elements of XML": ["a.xml", (n) => text(`${XML_HEAD}${"<a>".repeat(n)}x`)],
  "entities that expand": [
    "a.xml",
    (n) => {
      const entities = Array.from(
        { length: Math.min(n, 30) },
        (_, i) => `<!ENTITY e${i + 1} "${`&e${i};`.repeat(10)}">`,
      ).join("");
      return text(`${XML_HEAD}<!DOCTYPE a [<!ENTITY e0 "x">${entities}]><a>&e${Math.min(n, 30)};</a>`);
    },
  ],
  "attributes of XML": [
    "a.xml",
    (n) => text(`${XML_HEAD}<a ${Array.from({ length: n }, (_, i) => `a${i}="x"`).join(" ")}/>`),
  ],
  "JSON in JSON": ["a.json", (n) => text("[".repeat(n))],
  "a CSV of commas": ["a.csv", (n) => text(",".repeat(n))],
  "Markdown in Markdown": ["a.md", (n) => text(`${">".repeat(n)}${"[".repeat(n)}`)],
  "a line": ["a.txt", (n) => text("x".repeat(n))],
  "surrogates without their other half": ["a.txt", (n) => Buffer.from("\ud800".repeat(n), "utf16le")],
  "many paragraphs": ["a.docx", (n) => docx(paragraph("x").repeat(n))],
  "tables in tables": ["a.docx", (n) => docx(`${"<w:tbl><w:tr><w:tc>".repeat(n)}${paragraph("x")}`)],
  "a document of zeros": ["a.docx", (n) => docx(paragraph("0".repeat(n * 100)))],
  "many cells": ["a.xlsx", (n) => xlsx({ A: `<row r="1">${'<c r="A1" t="s"><v>0</v></c>'.repeat(n)}</row>` }, ["x"])],
  "a cell far away": ["a.xlsx", (n) => xlsx({ A: `<row r="${n * 10}"><c r="XFD${n * 10}"><v>1</v></c></row>` })],
  "many strings": [
    "a.xlsx",
    (n) => xlsx({ A: '<row r="1"><c r="A1" t="s"><v>0</v></c></row>' }, Array<string>(n).fill("x")),
  ],
  "a slide of shapes": ["a.pptx", (n) => pptx(["x\n".repeat(n)])],
  "an archive of many entries": [
    "a.docx",
    (n) => archive(Object.fromEntries(Array.from({ length: Math.min(n, 60_000) }, (_, i) => [`word/${i}.xml`, ""]))),
  ],
  "an archive that lies about its lengths": [
    "a.docx",
    (n) => Buffer.concat([docx(paragraph("x")).subarray(0, 200), Buffer.alloc(n, 0x50)]),
  ],
};

/** All of them, in all sizes. */
export function pathologicalFiles(): Pathological[] {
  const files: Pathological[] = [];
  const add = (name: string, filename: string, bytes: (n: number) => Uint8Array) => {
    // Kinds without a size come once.
    for (const count of bytes.length === 0 ? [1] : COUNTS) {
      files.push({ name: `${name} × ${count}`, filename, bytes: () => bytes(count) });
    }
  };
  for (const [name, content] of Object.entries(OPERATORS)) add(name, "a.pdf", (n) => contentPdf(flate(content(n))));
  for (const [name, bytes] of Object.entries({ ...RESOURCES, ...STRUCTURES })) add(name, "a.pdf", bytes);
  for (const [name, [filename, bytes]] of Object.entries(OTHERS)) add(name, filename, bytes);
  return files;
}
