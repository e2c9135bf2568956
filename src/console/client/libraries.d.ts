/** Libraries that are served beside this console's own files (assets.ts). */

declare module "*/lib/lit-html.js" {
  export * from "lit-html";
}

declare module "*/lib/directives/live.js" {
  export * from "lit-html/directives/live.js";
}

declare module "*/lib/eventsource-parser.js" {
  export * from "eventsource-parser";
}
