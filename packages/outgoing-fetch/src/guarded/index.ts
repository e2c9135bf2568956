export * from "./guarded-fetch.ts";
export * from "./public-url.ts";
