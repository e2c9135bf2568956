export * from "./charset.ts";
export * from "./encoding.ts";
export * from "./entities.ts";
export * from "./html-tokens.ts";
export * from "./marks.ts";
export * from "./page.ts";
export * from "./page-text.ts";
export * from "./wrap.ts";
