/** The Worker: the HTTP API, and the Durable Object classes: for conversations, for keys, for what keys use, for files and vector stores, for webhooks, for batches, and for how the model servers are and which runs live; and what the launcher of a process of one's own asks. */
export { Batches } from "./batches/batches.ts";
export { default } from "./http/app.ts";
export { Launcher } from "./http/draining.ts";
export { Board } from "./store/board.ts";
export { FileBytes } from "./store/files/file-bytes.ts";
export { FileDirectory } from "./store/files/file-directory.ts";
export { Home } from "./store/home.ts";
export { KeyDirectory } from "./store/keys/key-directory.ts";
export { Quota } from "./store/quota/quota.ts";
export { VectorStore } from "./store/vector-stores/vector-store.ts";
export { Webhooks } from "./store/webhooks/webhooks.ts";
