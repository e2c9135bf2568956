/** In the place of `file-formats.ts`, for a Worker that only reads short texts itself, and has other files read elsewhere. */

function absent(): never {
  throw new Error("This bundle reads no such files.");
}

export const archiveText: typeof import("./archive.ts")["archiveText"] = absent;
export const readMail: typeof import("./mail.ts")["readMail"] = absent;
export const loadPdfReader: typeof import("./pdf.ts")["loadPdfReader"] = absent;
export const pdfText: typeof import("./pdf.ts")["pdfText"] = absent;
export const drawPages: typeof import("./pdf-pictures.ts")["drawPages"] = absent;
