export * from "./byte-reader.ts";
export * from "./connection.ts";
export * from "./http1.ts";
export * from "./socket-fetch.ts";
