/**
 * The Worker: the HTTP API; the Durable Object classes for conversations, keys, counters, files and vector stores,
 * webhooks, batches, lists of responses, and the board of model servers and live runs; and the entrypoints for the
 * launcher of a self-hosted process and for its successor.
 */
import type { RawEnv } from "./env.ts";
import app from "./http/app.ts";
import { withObjects } from "./store/objects/objects.ts";
import { isSucceeded, untilReleased } from "./store/objects/ownership.ts";

export { Batches } from "./batches/batches.ts";
export { Launcher } from "./http/launcher.ts";
export { Share } from "./http/share.ts";
export { Board } from "./store/deployment/board.ts";
export { KeyDirectory } from "./store/deployment/keys/key-directory.ts";
export { Home } from "./store/home/home.ts";
export { Quota } from "./store/limits/quota-object.ts";
export { Objects } from "./store/objects/hand-over.ts";
export { FileBytes } from "./store/tenant/files/file-bytes.ts";
export { FileDirectory } from "./store/tenant/files/file-directory.ts";
export { ResponseIndex } from "./store/tenant/response-index/response-index.ts";
export { VectorStore } from "./store/tenant/vector-stores/vector-store.ts";
export { Webhooks } from "./store/tenant/webhooks/webhooks.ts";

export default {
  fetch(request, env, context) {
    // After a succession, requests on connections of this process go to the successor, too.
    if (env.OTHER_REQUESTS && isSucceeded()) return passOn(request, env.OTHER_REQUESTS);
    return app.fetch(request, withObjects(env), context);
  },
} satisfies ExportedHandler<RawEnv>;

async function passOn(request: Request, successor: Fetcher): Promise<Response> {
  const answer = await successor.fetch(request);
  await untilReleased();
  return answer;
}
