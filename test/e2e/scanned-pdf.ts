import { pdfOf, streamOf } from "../../packages/file-text/test/corpus.ts";

/** A PDF with a page for each text; a page without one (null) is a scan: an image over all of it, whose grey a number gives. */
export function scannedPdf(pages: readonly (string | number | null)[], mediaBox = "0 0 595 842"): Uint8Array {
  const objects: (string | Uint8Array)[] = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    `<< /Type /Pages /Kids [${pages.map((_, at) => `${5 + 2 * at} 0 R`).join(" ")}] /Count ${pages.length} >>`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    streamOf(
      Uint8Array.of(0, 90, 180, 255),
      "/Type /XObject /Subtype /Image /Width 2 /Height 2 /ColorSpace /DeviceGray /BitsPerComponent 8",
    ),
  ];
  for (const [at, text] of pages.entries()) {
    const isScan = typeof text !== "string";
    const content = isScan
      ? `q ${(text ?? 0) / 100} g 0 0 595 842 re f Q q 500 0 0 700 40 40 cm /I Do Q`
      : `BT /F 12 Tf 72 720 Td (${text}) Tj ET`;
    objects.push(
      `<< /Type /Page /Parent 2 0 R /MediaBox [${mediaBox}] /Resources << /Font << /F 3 0 R >> /XObject << /I 4 0 R >> >> /Contents ${6 + 2 * at} 0 R >>`,
      streamOf(new TextEncoder().encode(content)),
    );
  }
  return pdfOf(objects);
}
