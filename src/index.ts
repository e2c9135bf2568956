/** The Worker: the HTTP API, and the Durable Object class that keeps conversations. */
export { default } from "./http/app.ts";
export { Home } from "./store/home.ts";
