export * from "./long-work.ts";
