export * from "./chunker.ts";
export * from "./codes.ts";
export * from "./fusion.ts";
export * from "./kernel.ts";
export * from "./quantised.ts";
export * from "./words.ts";
