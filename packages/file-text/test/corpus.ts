import { deflateSync, strToU8, zipSync } from "fflate";

/** Files in the forms of real programs, and malformed ones. They are made here, so that their content is visible. */

/** A PDF of objects, the catalogue first, with a cross-reference table. */
export function pdfOf(objects: readonly (string | Uint8Array)[]): Uint8Array {
  const parts: Uint8Array[] = [strToU8("%PDF-1.7\n%âãÏÓ\n", true)];
  const offsets: number[] = [];
  let length = parts[0]?.length ?? 0;
  const add = (part: Uint8Array) => {
    parts.push(part);
    length += part.length;
  };
  for (const [index, object] of objects.entries()) {
    offsets.push(length);
    add(strToU8(`${index + 1} 0 obj\n`));
    add(typeof object === "string" ? strToU8(object, true) : object);
    add(strToU8("\nendobj\n"));
  }
  const start = length;
  const rows = offsets.map((offset) => `${String(offset).padStart(10, "0")} 00000 n \n`);
  add(strToU8(`xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${rows.join("")}`));
  add(strToU8(`trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`));
  return join(parts);
}

/** A stream object. */
export function streamOf(content: Uint8Array, entries = ""): Uint8Array {
  return join([strToU8(`<< /Length ${content.length} ${entries} >>\nstream\n`), content, strToU8("\nendstream")]);
}

/** A PDF with a page for each text, in Helvetica; lines of a text are lines of the page. */
export function textPdf(pages: readonly string[], { isCompressed = true } = {}): Uint8Array {
  const kids = pages.map((_, index) => `${4 + 2 * index} 0 R`).join(" ");
  const objects: (string | Uint8Array)[] = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    `<< /Type /Pages /Kids [${kids}] /Count ${pages.length} >>`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
  ];
  for (const [index, page] of pages.entries()) {
    const lines = page.split("\n").map((line) => `(${line.replace(/[()\\]/g, "\\$&")}) Tj T*`);
    const content = strToU8(`BT /F1 12 Tf 14 TL 72 720 Td ${lines.join("\n")} ET`, true);
    objects.push(
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents ${5 + 2 * index} 0 R >>`,
      isCompressed ? streamOf(zlib(content), "/Filter /FlateDecode") : streamOf(content),
    );
  }
  return pdfOf(objects);
}

/** A PDF of one page whose content is a stream object. */
export function contentPdf(
  content: Uint8Array | string,
  resources = "",
  others: readonly (string | Uint8Array)[] = [],
): Uint8Array {
  return pdfOf([
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> ${resources} >> /Contents 5 0 R >>`,
    content,
    ...others,
  ]);
}

/** DEFLATE in zlib's frame. */
export function zlib(bytes: Uint8Array): Uint8Array {
  let [a, b] = [1, 0];
  for (const byte of bytes) {
    a = (a + byte) % 65_521;
    b = (b + a) % 65_521;
  }
  const sum = new Uint8Array(4);
  new DataView(sum.buffer).setUint32(0, ((b << 16) | a) >>> 0);
  return join([new Uint8Array([0x78, 0x9c]), deflateSync(bytes), sum]);
}

const W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"';

/** A document with a body. */
export function docx(body: string): Uint8Array {
  return archive({
    "[Content_Types].xml": "<Types/>",
    "word/document.xml": `<?xml version="1.0" encoding="UTF-8"?><w:document ${W}><w:body>${body}</w:body></w:document>`,
  });
}

/** A paragraph of a document. */
export function paragraph(text: string, style = ""): string {
  const properties = style === "" ? "" : `<w:pPr><w:pStyle w:val="${style}"/></w:pPr>`;
  return `<w:p>${properties}<w:r><w:t xml:space="preserve">${text}</w:t></w:r></w:p>`;
}

/** A workbook: the rows of each sheet as XML, and its shared strings. */
export function xlsx(sheets: Readonly<Record<string, string>>, strings: readonly string[] = []): Uint8Array {
  const names = Object.keys(sheets);
  return archive({
    "xl/workbook.xml": `<workbook xmlns:r="r"><sheets>${names.map((name, index) => `<sheet name="${name}" sheetId="${index + 1}" r:id="rId${index + 1}"/>`).join("")}</sheets></workbook>`,
    "xl/_rels/workbook.xml.rels": `<Relationships>${names.map((_, index) => `<Relationship Id="rId${index + 1}" Target="worksheets/sheet${index + 1}.xml"/>`).join("")}</Relationships>`,
    "xl/styles.xml":
      '<styleSheet><numFmts><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd"/></numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/></cellXfs></styleSheet>',
    "xl/sharedStrings.xml": `<sst>${strings.map((text) => `<si><t>${text}</t></si>`).join("")}</sst>`,
    ...Object.fromEntries(
      names.map((name, index) => [
        `xl/worksheets/sheet${index + 1}.xml`,
        `<worksheet><sheetData>${sheets[name]}</sheetData></worksheet>`,
      ]),
    ),
  });
}

/** A presentation whose slides have their texts as paragraphs; `order` are their numbers as they are shown. */
export function pptx(
  slides: readonly string[],
  order: readonly number[] = slides.map((_, index) => index + 1),
): Uint8Array {
  return archive({
    "ppt/presentation.xml": `<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst>${order.map((number) => `<p:sldId id="${255 + number}" r:id="rId${number}"/>`).join("")}</p:sldIdLst></p:presentation>`,
    "ppt/_rels/presentation.xml.rels": `<Relationships>${slides.map((_, index) => `<Relationship Id="rId${index + 1}" Target="slides/slide${index + 1}.xml"/>`).join("")}</Relationships>`,
    ...Object.fromEntries(
      slides.map((text, index) => [
        `ppt/slides/slide${index + 1}.xml`,
        `<p:sld xmlns:p="p" xmlns:a="a"><p:sp><p:txBody>${text
          .split("\n")
          .map((line) => `<a:p><a:r><a:t>${line}</a:t></a:r></a:p>`)
          .join("")}</p:txBody></p:sp></p:sld>`,
      ]),
    ),
  });
}

export function archive(entries: Readonly<Record<string, string | Uint8Array>>): Uint8Array {
  return zipSync(
    Object.fromEntries(
      Object.entries(entries).map(([name, content]) => [
        name,
        typeof content === "string" ? strToU8(content) : content,
      ]),
    ),
  );
}

export function join(parts: readonly Uint8Array[]): Uint8Array {
  const joined = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}
