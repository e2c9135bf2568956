/** The Worker: the HTTP API, and the Durable Object classes: for conversations, for keys, and for what keys use. */
export { default } from "./http/app.ts";
export { Home } from "./store/home.ts";
export { KeyDirectory } from "./store/keys/key-directory.ts";
export { Quota } from "./store/quota/quota.ts";
