/**
 * The readers of formats whose code is large: half of that of the Worker. A bundle without them has `no-file-formats.ts` in the place of
 * this module (`scripts/bundle.js`).
 */
export { archiveText } from "./archive.ts";
export { readMail } from "./mail.ts";
export { loadPdfReader, pdfText } from "./pdf.ts";
export { drawPages } from "./pdf-pictures.ts";
