import { type AboutFile, type TextPage, textOf } from "@responses-edge/file-text";
import { strToU8 } from "fflate";
import { describe, expect, it } from "vitest";
import { docx, paragraph, pptx, textPdf, xlsx } from "./corpus.ts";

/** The project's own way to read a generator's end. */
async function read(bytes: Uint8Array, filename: string, mimeType?: string): Promise<TextPage[]> {
  const about: AboutFile = { filename, mimeType };
  return Array.fromAsync(textOf(bytes, about));
}

async function text(bytes: Uint8Array, filename: string, mimeType?: string): Promise<string> {
  const pages = await read(bytes, filename, mimeType);
  expect(pages.map(({ page }) => page)).toEqual([null]);
  return pages[0]?.text ?? "";
}

describe("a PDF", () => {
  it("is read page by page", async () => {
    expect(await read(textPdf(["First page\nits second line", "Page (two)"]), "a.pdf")).toEqual([
      { page: 1, text: "First page\nits second line" },
      { page: 2, text: "Page (two)" },
    ]);
  });

  it("keeps the numbers of its pages where some have no text", async () => {
    expect(await read(textPdf(["", "Two", "", "Four"]), "a.pdf")).toEqual([
      { page: 2, text: "Two" },
      { page: 4, text: "Four" },
    ]);
  });

  it("is read beside others, each for itself", async () => {
    const files = Array.from({ length: 5 }, (_, file) => Array.from({ length: 4 }, (_, page) => `${file}, ${page}`));
    const texts = await Promise.all(files.map((pages) => read(textPdf(pages), "a.pdf")));
    expect(texts.map((pages) => pages.map(({ text }) => text))).toEqual(files);
  });

  it("leaves the caller its bytes", async () => {
    const bytes = textPdf(["One"]);
    await read(bytes, "a.pdf");
    expect(await read(bytes, "a.pdf")).toEqual([{ page: 1, text: "One" }]);
  });
});

describe("a document", () => {
  it("has its paragraphs on lines, headings and tables as in Markdown", async () => {
    const cell = (content: string) => `<w:tc>${paragraph(content)}</w:tc>`;
    const table = `<w:tbl><w:tr>${cell("a")}${cell("b")}</w:tr><w:tr>${cell("1")}${cell("2 &lt; 3")}</w:tr></w:tbl>`;
    const body = paragraph("Title", "Heading1") + paragraph("Tom &amp; Zoë&#8217;s") + table + paragraph("end");
    expect(await text(docx(body), "a.docx")).toBe("# Title\nTom & Zoë’s\na | b |\n1 | 2 < 3 |\n\nend");
  });

  it("shows tabs and line breaks, and no deleted or repeated text", async () => {
    const body = `<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r><w:del><w:r><w:delText>x</w:delText></w:r></w:del></w:p>
      <w:p><mc:AlternateContent><mc:Choice><w:t>once</w:t></mc:Choice><mc:Fallback><w:t>twice</w:t></mc:Fallback></mc:AlternateContent></w:p>`;
    expect(await text(docx(body), "a.docx")).toBe("a\tb\nc\nonce");
  });
});

describe("a workbook", () => {
  it("has a page for each sheet, a line for each row, and cells in their columns", async () => {
    const rows =
      '<row><c r="A1" t="s"><v>1</v></c><c r="C1"><v>4.5</v></c></row><row><c r="B2" t="b"><v>1</v></c><c r="C2" t="inlineStr"><is><t>in\nline</t></is></c></row>';
    const pages = await read(
      xlsx({ One: rows, "Two &amp; more": '<row><c r="A1" t="str"><v>x</v></c></row>' }, ["no", "yes"]),
      "a.xlsx",
    );
    expect(pages).toEqual([
      { page: 1, text: "# One\nyes\t\t4.5\n\tTRUE\tin line" },
      { page: 2, text: "# Two & more\nx" },
    ]);
  });

  it("shows dates as dates", async () => {
    const rows =
      '<row><c r="A1" s="1"><v>45000</v></c><c r="B1" s="2"><v>45000.5</v></c><c r="C1"><v>45000</v></c></row>';
    expect(await read(xlsx({ S: rows }), "a.xlsx")).toEqual([
      { page: 1, text: "# S\n2023-03-15\t2023-03-15 12:00:00\t45000" },
    ]);
  });
});

describe("a presentation", () => {
  it("has a page for each slide, in the order in which they are shown", async () => {
    expect(await read(pptx(["one", "two\nlines", "three"], [2, 1, 3]), "a.pptx")).toEqual([
      { page: 1, text: "two\nlines" },
      { page: 2, text: "one" },
      { page: 3, text: "three" },
    ]);
  });
});

describe("a page of the web", () => {
  it("is shown as text under its title", async () => {
    const html =
      "<!doctype html><title>T</title><style>x</style><h1>Head</h1><p>See <a href='https://acme.dev/'>this</a>.";
    expect(await text(strToU8(html), "a.html")).toBe("T\n\n# Head\n\nSee this.");
    expect(await text(strToU8(html), "page", "text/html; charset=utf-8")).toBe("T\n\n# Head\n\nSee this.");
    expect(await text(strToU8(html), "page")).toBe("T\n\n# Head\n\nSee this.");
  });
});

describe("a text", () => {
  it.each(["a.md", "a.csv", "a.tsv", "a.json", "a.py", "a.ts", "Makefile", "a.unheard-of"])(
    "%s stands as it is",
    async (name) => {
      const content = "# naïve 日本 😀\n\tx,y\r\n<b>";
      expect(await text(strToU8(content), name)).toBe(content);
    },
  );

  it("is read by its byte order mark, as UTF-8, by its charset, or by a guess (encodings.test.ts)", async () => {
    expect(await text(strToU8("\ufeffa"), "a.txt")).toBe("a");
    expect(await text(new Uint8Array([0xff, 0xfe, 0x61, 0, 0xac, 0x20]), "a.txt")).toBe("a€");
    expect(await text(new Uint8Array([0xfe, 0xff, 0, 0x61, 0x20, 0xac]), "a.txt")).toBe("a€");
    expect(await text(new Uint8Array([0xcf, 0xd2]), "a.txt", "text/plain; charset=koi8-r")).toBe("ор");
    expect(await text(new Uint8Array([0x6e, 0x61, 0xef, 0x76, 0x65]), "a.txt")).toContain("naïve");
  });

  it("may be empty", async () => {
    expect(await text(new Uint8Array(), "a.txt")).toBe("");
  });

  it("is HTML only if its type says so, or there is none", async () => {
    expect(await text(strToU8("<html><p>x"), "a.md")).toBe("<html><p>x");
    expect(await text(strToU8("<html><p>x"), "a.php")).toBe("<html><p>x");
  });
});

describe("a file with a wrong type", () => {
  it("is read as what it is", async () => {
    expect(await read(textPdf(["One"]), "a.txt", "text/plain")).toEqual([{ page: 1, text: "One" }]);
    expect(await text(docx(paragraph("x")), "a.pdf", "application/pdf")).toBe("x");
    expect(await text(strToU8("mere text"), "a.pdf", "application/pdf")).toBe("mere text");
    expect(await read(pptx(["s"]), "a.docx")).toEqual([{ page: 1, text: "s" }]);
  });
});
