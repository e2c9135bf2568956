/** The Worker: the HTTP API, and the Durable Object classes that keep conversations and know how the model servers are. */
export { default } from "./http/app.ts";
export { Board } from "./store/board.ts";
export { Home } from "./store/home.ts";
