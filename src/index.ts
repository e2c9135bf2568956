/** The Worker: the HTTP API, and the Durable Object classes: for conversations, for keys, for what keys use, and for how the model servers are and which runs live. */
export { default } from "./http/app.ts";
export { Board } from "./store/board.ts";
export { Home } from "./store/home.ts";
export { KeyDirectory } from "./store/keys/key-directory.ts";
export { Quota } from "./store/quota/quota.ts";
