export * from "./file-text.ts";
export { DEFAULT_LIMITS, type TextLimits, UnreadableFile } from "./limits.ts";
export type { TextPage } from "./text-page.ts";
