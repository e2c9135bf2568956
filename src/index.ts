/**
 * The Worker: the HTTP API; the Durable Object classes for conversations, keys, counters, files and vector stores,
 * webhooks, batches, lists of responses, and the board of model servers and live runs; and the entrypoints for the
 * launcher of a self-hosted process and for its successor.
 */
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
export { Quota } from "./store/quota/quota-object.ts";
export { ResponseIndex } from "./store/response-index/response-index.ts";
export { VectorStore } from "./store/vector-stores/vector-store.ts";
export { Webhooks } from "./store/webhooks/webhooks.ts";

export default {
  fetch(request, env, context) {
    // After a succession, requests on connections of this process go to the successor, too.
    if (env.OTHER_REQUESTS && isSucceeded()) return passOn(request, env.OTHER_REQUESTS);
    return app.fetch(request, env.OTHER ? routed(env) : env, context);
  },
} satisfies ExportedHandler<Env>;

async function passOn(request: Request, successor: Fetcher): Promise<Response> {
  const answer = await successor.fetch(request);
  await untilReleased();
  return answer;
}
