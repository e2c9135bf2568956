import { textOf } from "@responses-edge/file-text";
import { strToU8 } from "fflate";
import { describe, expect, it } from "vitest";
import { archive, docx, paragraph, textPdf, xlsx } from "./corpus.ts";

const read = async (bytes: Uint8Array, filename: string, limits = {}) => {
  const pages = await Array.fromAsync(textOf(bytes, { filename }, limits));
  return pages.map(({ text }) => text).join("\f");
};

const W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"';
const part = (name: string, content: string) => `<w:${name} ${W}>${content}</w:${name}>`;

/** A document with parts beside its body. */
const documentWith = (body: string, parts: Record<string, string>) =>
  archive({
    "word/document.xml": `<w:document ${W}><w:body>${body}</w:body></w:document>`,
    ...Object.fromEntries(Object.entries(parts).map(([name, content]) => [`word/${name}.xml`, content])),
  });

describe("a document", () => {
  it("has its headers and footers, each once", async () => {
    const header = part("hdr", paragraph("CONFIDENTIAL"));
    const parts = { header1: header, header2: header, footer1: part("ftr", paragraph("v3")) };
    expect(await read(documentWith(paragraph("Body"), parts), "a.docx")).toBe("CONFIDENTIAL\n\nBody\n\nv3");
  });

  it("has the numbers of its lists", async () => {
    const level = (at: number, format: string, text: string) =>
      `<w:lvl w:ilvl="${at}"><w:start w:val="1"/><w:numFmt w:val="${format}"/><w:lvlText w:val="${text}"/></w:lvl>`;
    const numbering = part(
      "numbering",
      `<w:abstractNum w:abstractNumId="5">${level(0, "decimal", "%1.")}${level(1, "lowerLetter", "%1.%2)")}</w:abstractNum>
       <w:abstractNum w:abstractNumId="6">${level(0, "bullet", "•")}</w:abstractNum>
       <w:num w:numId="1"><w:abstractNumId w:val="5"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="6"/></w:num>`,
    );
    const styles = part(
      "styles",
      '<w:style w:styleId="ListNumber"><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>',
    );
    const item = (text: string, list: number, at = 0) =>
      `<w:p><w:pPr><w:numPr><w:ilvl w:val="${at}"/><w:numId w:val="${list}"/></w:numPr></w:pPr><w:r><w:t>${text}</w:t></w:r></w:p>`;
    const body =
      item("one", 1) +
      item("inner", 1, 1) +
      item("inner two", 1, 1) +
      item("two", 1) +
      paragraph("three", "ListNumber") +
      item("dot", 2);
    expect(await read(documentWith(body, { numbering, styles }), "a.docx")).toBe(
      "1. one\n  1.a) inner\n  1.b) inner two\n2. two\n3. three\n- dot",
    );
  });

  it("has its comments where they stand, hyphens that do not break, and insertions that are proposed", async () => {
    const comments = part("comments", `<w:comment w:id="3" w:author="Ann">${paragraph("check this")}</w:comment>`);
    const body = `<w:p><w:r><w:t>co</w:t><w:noBreakHyphen/><w:t>op</w:t></w:r><w:r><w:commentReference w:id="3"/></w:r>
      <w:del><w:r><w:delText>100</w:delText></w:r></w:del><w:ins><w:r><w:t> 250</w:t></w:r></w:ins></w:p>`;
    expect(await read(documentWith(body, { comments }), "a.docx")).toBe("co-op [comment by Ann: check this] 250");
    expect(await read(docx(paragraph("plain")), "a.docx")).toBe("plain");
  });
});

describe("a workbook", () => {
  const formats = (codes: readonly string[]) =>
    `<styleSheet><numFmts>${codes.map((code, index) => `<numFmt numFmtId="${164 + index}" formatCode="${code}"/>`).join("")}</numFmts>
      <cellXfs><xf numFmtId="0"/>${codes.map((_, index) => `<xf numFmtId="${164 + index}"/>`).join("")}</cellXfs></styleSheet>`;
  const sheet = (rows: string, codes: readonly string[] = [], state = "") =>
    archive({
      "xl/workbook.xml": `<workbook xmlns:r="r"><sheets><sheet name="S" sheetId="1" r:id="rId1" ${state}/></sheets></workbook>`,
      "xl/_rels/workbook.xml.rels":
        '<Relationships><Relationship Id="rId1" Target="worksheets/sheet1.xml"/></Relationships>',
      "xl/styles.xml": formats(codes),
      "xl/worksheets/sheet1.xml": `<worksheet><sheetData>${rows}</sheetData></worksheet>`,
    });

  it("shows numbers as its cells do: percentages, money, hours", async () => {
    const cells = [0.195, 1234.5, 26.5 / 24, 46_112, 3].map(
      (value, index) => `<c s="${index + 1}"><v>${value}</v></c>`,
    );
    const codes = ["0.0%", "#,##0.00 &quot;€&quot;", "[h]:mm", "yyyy-mm-dd", "General"];
    expect(await read(sheet(`<row>${cells.join("")}</row>`, codes), "a.xlsx")).toBe(
      "# S\n19.5%\t1,234.50 €\t26:30\t2026-03-31\t3",
    );
  });

  it("shows a formula that was never calculated, the errors of others, and that a sheet is hidden", async () => {
    const rows = '<row><c><f>A1*2</f></c><c><f>B1</f><v>4</v></c><c t="e"><f>1/0</f><v>#DIV/0!</v></c></row>';
    expect(await read(sheet(rows, [], 'state="hidden"'), "a.xlsx")).toBe("# S (hidden)\n=A1*2\t4\t#DIV/0!");
  });

  it("says how many rows are left out", async () => {
    const rows = Array.from({ length: 5 }, (_, index) => `<row><c><v>${index}</v></c></row>`).join("");
    expect(await read(sheet(rows), "a.xlsx", { maxRows: 2 })).toBe(
      "# S\n0\n1\n[3 more rows of this sheet are left out.]",
    );
    expect(await read(xlsx({ T: rows }), "a.xlsx")).toBe("# T\n0\n1\n2\n3\n4");
  });
});

it("a slide has its notes, without their numbers", async () => {
  const shape = (type: string, text: string) =>
    `<p:sp><p:nvPr><p:ph type="${type}"/></p:nvPr><p:txBody><a:p><a:r><a:t>${text}</a:t></a:r></a:p></p:txBody></p:sp>`;
  const slides = archive({
    "ppt/presentation.xml":
      '<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst><p:sldId r:id="rId1"/></p:sldIdLst></p:presentation>',
    "ppt/_rels/presentation.xml.rels":
      '<Relationships><Relationship Id="rId1" Target="slides/slide1.xml"/></Relationships>',
    "ppt/slides/slide1.xml": `<p:sld xmlns:p="p" xmlns:a="a">${shape("title", "Title")}</p:sld>`,
    "ppt/slides/_rels/slide1.xml.rels":
      '<Relationships><Relationship Id="rId2" Type="http://x/notesSlide" Target="../notesSlides/notesSlide1.xml"/></Relationships>',
    "ppt/notesSlides/notesSlide1.xml": `<p:notes xmlns:p="p" xmlns:a="a">${shape("sldNum", "1")}${shape("body", "SAY THIS")}</p:notes>`,
  });
  expect(await read(slides, "a.pptx")).toBe("Title\n\nNotes: SAY THIS");
});

describe("an OpenDocument file", () => {
  const open = (kind: string, content: string) =>
    archive({
      mimetype: `application/vnd.oasis.opendocument.${kind}`,
      "content.xml": `<office:document-content xmlns:office="o" xmlns:text="t" xmlns:table="b" xmlns:draw="d"><office:body><office:${kind}>${content}</office:${kind}></office:body></office:document-content>`,
    });

  it("that is a text has its headings, lists and tables", async () => {
    const content = `<text:h text:outline-level="2">Head</text:h><text:p>a<text:s text:c="2"/>b<text:tab/>c</text:p>
      <text:list><text:list-item><text:p>item</text:p></text:list-item></text:list>
      <table:table table:name="T"><table:table-row><table:table-cell><text:p>k</text:p></table:table-cell><table:table-cell><text:p>v</text:p></table:table-cell></table:table-row></table:table>`;
    expect(await read(open("text", content), "a.odt")).toBe("## Head\na  b\tc\n- item\nk | v |");
  });

  it("that is a workbook has a page for each sheet, and cells in their columns", async () => {
    const cell = (text: string, repeated = 1) =>
      `<table:table-cell table:number-columns-repeated="${repeated}">${text === "" ? "" : `<text:p>${text}</text:p>`}</table:table-cell>`;
    const content = `<table:table table:name="One"><table:table-row>${cell("a")}${cell("", 2)}${cell("d")}</table:table-row><table:table-row>${cell("", 16_384)}</table:table-row></table:table>
      <table:table table:name="Two"><table:table-row>${cell("", 1)}${cell("b")}</table:table-row></table:table>`;
    expect(await read(open("spreadsheet", content), "a.ods")).toBe("# One\na\t\t\td\f# Two\n\tb");
  });

  it("that is a presentation has a page for each slide, with its notes", async () => {
    const content =
      "<draw:page><text:p>Title</text:p><presentation:notes><text:p>say</text:p></presentation:notes></draw:page><draw:page><text:p>Next</text:p></draw:page>";
    expect(await read(open("presentation", content), "a.odp")).toBe("Title\n\nNotes: say\fNext");
  });
});

it("a book has a page for each document of its spine", async () => {
  const book = archive({
    "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/content.opf"/></rootfiles></container>',
    "OEBPS/content.opf":
      '<package><manifest><item id="a" href="one.xhtml"/><item id="b" href="two%202.xhtml"/></manifest><spine><itemref idref="b"/><itemref idref="a"/></spine></package>',
    "OEBPS/one.xhtml": "<html><body><h1>One</h1></body></html>",
    "OEBPS/two 2.xhtml": "<html><body><p>Grüße</p></body></html>",
  });
  expect(await read(book, "a.epub")).toBe("Grüße\f# One");
});

describe("RTF", () => {
  const rtf = (content: string) => read(strToU8(`{\\rtf1\\ansi\\ansicpg1252${content}}`), "a.rtf");

  it("has its text, without tables of fonts and hidden destinations", async () => {
    const content =
      "{\\fonttbl{\\f0 Arial;}}{\\*\\generator X;}\\f0 Hello {\\b RTF} caf\\'e9 \\u8364?\\par next\\tab x\\{y\\}";
    expect(await rtf(content)).toBe("Hello RTF café €\nnext\tx{y}");
  });

  it("may write its codes in capitals, and its words, too", async () => {
    expect(await rtf("{\\mmathPr\\mmathFont34}caf\\'E9")).toBe("café");
  });

  it("in another code page is read in it", async () => {
    expect(await read(strToU8("{\\rtf1\\ansi\\ansicpg932 \\'93\\'fa\\'96\\'7b}"), "a.rtf")).toBe("日本");
  });

  it("that is cut off is damaged", async () => {
    await expect(read(strToU8("{\\rtf1 {\\b Hello"), "a.rtf")).rejects.toMatchObject({ code: "invalid_file" });
  });
});

describe("a mail", () => {
  const mail = (parts: readonly string[]) =>
    strToU8(
      [
        "From: Ann <a@example.org>",
        "To: b@example.org",
        "Subject: =?utf-8?B?w5xiZXJzaWNodA==?=",
        "MIME-Version: 1.0",
        'Content-Type: multipart/mixed; boundary="x"',
        "",
        ...parts.flatMap((each) => ["--x", each]),
        "--x--",
        "",
      ].join("\r\n"),
    );
  const words =
    "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr=C3=BC=C3=9Fe";

  it("has its head, its text, and the text of its attachments", async () => {
    const pdf = textPdf(["Invoice"]).toBase64();
    const attached = `Content-Type: application/pdf; name="a.pdf"\r\nContent-Disposition: attachment; filename="a.pdf"\r\nContent-Transfer-Encoding: base64\r\n\r\n${pdf}`;
    const image =
      "Content-Type: image/png; name=i.png\r\nContent-Disposition: attachment; filename=i.png\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo=";
    const text = await read(mail([words, attached, image]), "a.eml");
    expect(text).toBe(
      "From: Ann <a@example.org>\nTo: b@example.org\nSubject: Übersicht\n\nGrüße\f[attachment: a.pdf]\fInvoice\f[attachment: i.png]\f[It cannot be read: The file is an image: give it as input_image.]",
    );
  });

  it("is a text where its name and type are", async () => {
    expect(await read(mail([words]), "a.txt")).toContain("Content-Transfer-Encoding");
  });
});
