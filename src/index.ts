/** The Worker: the HTTP API, and the Durable Object classes: for conversations, for keys, for what keys use, for files and vector stores, for webhooks, for batches, for lists of responses, and for how the model servers are and which runs live; and what the launcher of a process of one's own asks, and its successor. */
import type { Env } from "./env.ts";
import app from "./http/app.ts";
import { routed } from "./store/object-routes.ts";
import { isSucceeded, untilReleased } from "./store/ownership.ts";

export { Batches } from "./batches/batches.ts";
export { Launcher } from "./http/launcher.ts";
export { Share } from "./http/share.ts";
export { Board } from "./store/board.ts";
export { FileBytes } from "./store/files/file-bytes.ts";
export { FileDirectory } from "./store/files/file-directory.ts";
export { Objects } from "./store/hand-over.ts";
export { Home } from "./store/home.ts";
export { KeyDirectory } from "./store/keys/key-directory.ts";
export { Quota } from "./store/quota/quota.ts";
export { ResponseIndex } from "./store/response-index/response-index.ts";
export { VectorStore } from "./store/vector-stores/vector-store.ts";
export { Webhooks } from "./store/webhooks/webhooks.ts";

export default {
  fetch(request, env, context) {
    // A request on a connection that was open before is the successor's, too.
    return isSucceeded() && env.OTHER_REQUESTS
      ? passOn(request, env.OTHER_REQUESTS)
      : app.fetch(request, routed(env), context);
  },
} satisfies ExportedHandler<Env>;

async function passOn(request: Request, successor: Fetcher): Promise<Response> {
  const answer = await successor.fetch(request);
  await untilReleased();
  return answer;
}
