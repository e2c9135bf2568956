import { textOf } from "@responses-edge/file-text";
import { describe, expect, it } from "vitest";
import { contentPdf, pdfOf, streamOf } from "./corpus.ts";

const read = async (bytes: Uint8Array) => {
  const pages = await Array.fromAsync(textOf(bytes, { filename: "a.pdf" }));
  return pages.map(({ text }) => text).join("\f");
};

/** A page with texts at places, in points from the lower left. */
const placed = (texts: readonly (readonly [x: number, y: number, text: string])[]) =>
  texts.map(([x, y, text]) => `BT /F1 10 Tf ${x} ${y} Td (${text.replace(/[()\\]/g, "\\$&")}) Tj ET`).join("\n");
const page = (...texts: [number, number, string][]) => contentPdf(streamOf(new TextEncoder().encode(placed(texts))));

/** A page with codes of a predefined character map, between lines in Helvetica. */
function cjk(map: string, ordering: string, font: string, codes: string): Uint8Array {
  const [first, last] = [placed([[72, 740, "Invoice 42"]]), placed([[72, 700, "Thank you."]])];
  return pdfOf([
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R /F2 6 0 R >> >> /Contents 5 0 R >>",
    streamOf(new TextEncoder().encode(`${first}\nBT /F2 14 Tf 72 720 Td <${codes}> Tj ET\n${last}`)),
    `<< /Type /Font /Subtype /Type0 /BaseFont /${font} /Encoding /${map} /DescendantFonts [7 0 R] >>`,
    `<< /Type /Font /Subtype /CIDFontType0 /BaseFont /${font} /FontDescriptor 8 0 R
        /CIDSystemInfo << /Registry (Adobe) /Ordering (${ordering}) /Supplement 2 >> >>`,
    `<< /Type /FontDescriptor /FontName /${font} /Flags 4 /FontBBox [0 -200 1000 900] /ItalicAngle 0 /Ascent 800
        /Descent -200 /CapHeight 700 /StemV 80 >>`,
  ]);
}

describe("a Chinese, Japanese or Korean PDF whose font names a predefined character map", () => {
  it.each([
    ["90ms-RKSJ-H", "Japan1", "HeiseiMin-W3", "93fa967b8cea", "日本語"],
    ["EUC-H", "Japan1", "HeiseiMin-W3", "c6fccbdcb8ec", "日本語"],
    ["UniJIS-UCS2-H", "Japan1", "HeiseiMin-W3", "65e5672c8a9e", "日本語"],
    ["UniJIS-UTF16-H", "Japan1", "HeiseiMin-W3", "65e5672c8a9e", "日本語"],
    ["GBK-EUC-H", "GB1", "STSong-Light", "d6d0cec4b7a2c6b1", "中文发票"],
    ["UniGB-UCS2-H", "GB1", "STSong-Light", "4e2d658753d17968", "中文发票"],
    ["ETen-B5-H", "CNS1", "MSung-Light", "a4a4a4e5", "中文"],
    ["KSCms-UHC-H", "Korea1", "HYSMyeongJo-Medium", "c7d1b1b9beee", "한국어"],
    ["UniKS-UCS2-H", "Korea1", "HYSMyeongJo-Medium", "d55cad6dc5b4", "한국어"],
  ])("%s (%s) is read, beside other text", async (map, ordering, font, codes, text) => {
    expect(await read(cjk(map, ordering, font, codes))).toBe(`Invoice 42\n${text}\nThank you.`);
  });
});

describe("texts at different places of a page", () => {
  it("are other words, lines and cells, also where the file has no spaces between them", async () => {
    expect(await read(page([72, 700, "VAT 123456"], [200, 700, "4250 EUR are due."]))).toBe(
      "VAT 123456\t4250 EUR are due.",
    );
    expect(await read(page([72, 700, "12"], [72, 686, "3.50"], [72, 672, "0.99"]))).toBe("12\n3.50\n0.99");
    expect(await read(page([72, 700, "Total"], [100, 700, "42"]))).toBe("Total 42");
  });

  it("are a table where they stand in rows, in whichever order the row was drawn", async () => {
    const rows = page(
      [72, 700, "Item"],
      [300, 700, "Price"],
      [200, 700, "Qty"],
      [72, 680, "Bolt"],
      [200, 680, "10"],
      [300, 680, "2.50"],
    );
    expect(await read(rows)).toBe("Item\tQty\tPrice\nBolt\t10\t2.50");
  });

  it("are paragraphs where there is more room between them", async () => {
    expect(await read(page([72, 700, "One"], [72, 688, "goes on."], [72, 650, "Two"]))).toBe("One\ngoes on.\n\nTwo");
  });
});

/** A page with annotations. */
const withAnnotations = (texts: [number, number, string][], ...annotations: string[]) =>
  pdfOf([
    "<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [6 0 R] >> >>",
    "<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents 5 0 R
        /Annots [${annotations.map((_, index) => `${6 + index} 0 R`).join(" ")}] >>`,
    streamOf(new TextEncoder().encode(placed(texts))),
    ...annotations,
  ]);

describe("what lies on a page", () => {
  it("is read: the values of a form's fields beside their labels", async () => {
    const form = withAnnotations(
      [
        [72, 750, "Surname:"],
        [72, 700, "I agree:"],
        [72, 650, "Country:"],
      ],
      "<< /Type /Annot /Subtype /Widget /FT /Tx /T (surname) /V (Lindqvist-7731) /Rect [150 740 350 760] >>",
      "<< /Type /Annot /Subtype /Widget /FT /Btn /T (agree) /V /Yes /AS /Yes /Rect [150 695 170 715] /AP << /N << /Yes 5 0 R /Off 5 0 R >> >> >>",
      "<< /Type /Annot /Subtype /Widget /FT /Ch /Ff 131072 /T (country) /V (NO) /Opt [(FR) (NO)] /Rect [150 640 230 660] >>",
    );
    expect(await read(form)).toBe("Surname:\tLindqvist-7731\n\nI agree:\t[x]\n\nCountry:\tNO");
  });

  it("is read: notes, stamps with words, and the targets of links", async () => {
    const notes = withAnnotations(
      [[72, 700, "See the list."]],
      "<< /Type /Annot /Subtype /FreeText /Rect [72 600 300 640] /Contents (REVIEWER NOTE 42) /DA (/Helv 12 Tf 0 g) >>",
      "<< /Type /Annot /Subtype /Link /Rect [72 695 140 712] /A << /S /URI /URI (https://example.com/list) >> >>",
    );
    expect(await read(notes)).toBe("See the list. <https://example.com/list>\nREVIEWER NOTE 42");
  });
});

it("words that a soft hyphen cuts at the end of a line are whole", async () => {
  const content = "BT /F2 10 Tf 72 700 Td (an extra\\001) Tj 0 -12 Td (ordinary co\\001operation) Tj ET";
  const hyphenated = pdfOf([
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding << /Differences [1 /softhyphen] >> >>",
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F2 3 0 R >> >> /Contents 5 0 R >>",
    streamOf(new TextEncoder().encode(content)),
  ]);
  expect(await read(hyphenated)).toBe("an extraordinary cooperation");
});

it("figures and ligatures with names of their own are read", async () => {
  const font =
    "<< /Type /Font /Subtype /Type1 /BaseFont /X /Encoding << /Differences [128 /zero.os /one.os /two.os /f_f_i /T_h.alt /nothing.os] >> >>";
  const named = pdfOf([
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
    font,
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents 5 0 R >>",
    streamOf(new TextEncoder().encode("BT /F1 10 Tf 72 700 Td <8182802083842085> Tj ET")),
  ]);
  expect(await read(named)).toBe("120 ffiTh \ufffd\n[A part of this page cannot be read.]");
});

describe("what cannot be read is told", () => {
  const image =
    "<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /BitsPerComponent 8 /ColorSpace /DeviceGray /Length 1 >>\nstream\n0\nendstream";
  const mixed = (pages: readonly string[]) =>
    pdfOf([
      "<< /Type /Catalog /Pages 2 0 R >>",
      `<< /Type /Pages /Kids [${pages.map((_, index) => `${5 + 2 * index} 0 R`).join(" ")}] /Count ${pages.length} >>`,
      "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
      image,
      ...pages.flatMap((content, index) => [
        `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792]
            /Resources << /Font << /F1 3 0 R >> /XObject << /Im 4 0 R >> >> /Contents ${6 + 2 * index} 0 R >>`,
        streamOf(new TextEncoder().encode(content)),
      ]),
    ]);
  const scan = "q 612 0 0 792 0 0 cm /Im Do Q";

  it("which pages of a PDF are images, beside those with text; an empty page is none", async () => {
    const pages = await Array.fromAsync(
      textOf(mixed([scan, placed([[72, 700, "Two"]]), "", scan]), { filename: "a.pdf" }),
    );
    expect(pages).toEqual([
      { page: 1, text: "[This page has no text: it is an image.]", isPartial: true, picture: "needed" },
      { page: 2, text: "Two" },
      { page: 4, text: "[This page has no text: it is an image.]", isPartial: true, picture: "needed" },
    ]);
  });

  it("that all pages are", async () => {
    await expect(read(mixed([scan, scan]))).rejects.toMatchObject({
      code: "unsupported_file",
      message: /its pages are images/,
    });
  });

  it("that a part of a page is in no font", async () => {
    const pages = await read(mixed([`BT 72 720 Td (lost) Tj ET\n${placed([[72, 700, "Two"]])}`]));
    expect(pages).toBe("Two\n[A part of this page cannot be read.]");
  });
});

it("that the codes of a page's font are no characters is told", async () => {
  const text = await read(cjk("Identity-H", "Identity", "Unknown", "0001000200030004"));
  expect(text).toBe("Invoice 42\n\ufffd\ufffd\ufffd\ufffd\nThank you.\n[A part of this page cannot be read.]");
});

it("a PDF behind the headers of a mail is read", async () => {
  const bytes = page([72, 700, "Invoice"]);
  const header = new TextEncoder().encode("Content-Type: application/pdf\r\nContent-Disposition: attachment\r\n\r\n");
  const mailed = new Uint8Array(header.length + bytes.length);
  mailed.set(header);
  mailed.set(bytes, header.length);
  expect(await read(mailed)).toBe("Invoice");
});
