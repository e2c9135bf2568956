export { drawPages } from "#file-formats";
export * from "./file-text.ts";
export { DEFAULT_LIMITS, type TextLimits, UnreadableFile } from "./limits.ts";
export type { PagePicture, PicturesWanted } from "./pdf-pictures.ts";
export { isWithoutText, type TextPage } from "./text-page.ts";
