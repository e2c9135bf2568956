export { type BoundedCopy, boundedCopy, type CopyBounds } from "./bounded-copy.ts";
export { logLine, oneLine } from "./log-line.ts";
export * from "./member.ts";
export * from "./prefix.ts";
export * from "./structure.ts";
export * from "./well-formed.ts";
