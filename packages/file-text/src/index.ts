export * from "./file-text.ts";
export { DEFAULT_LIMITS, type TextLimits, UnreadableFile } from "./limits.ts";
export { isWithoutText } from "./pdf.ts";
export { drawPages, type PagePicture, type PicturesWanted } from "./pdf-pictures.ts";
export type { TextPage } from "./text-page.ts";
