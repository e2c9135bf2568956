/**
 * The Worker: the HTTP API; the Durable Object classes for conversations, keys, counters, files and vector stores,
 * webhooks, batches, lists of responses, and the board of model servers and live runs; and the entrypoints for the
 * launcher of a self-hosted process, for its other workers, and for processes that read files and run programs.
 */
import type { RawEnv } from "./env.ts";
import app from "./http/app.ts";
import { withObjects } from "./store/objects/objects.ts";
import { released } from "./store/objects/ownership.ts";
import { IS_SERVED } from "./store/objects/workers.ts";

export { Batches } from "./batches/batches.ts";
export { BoundedTasks } from "./http/bounded-tasks.ts";
export { Launcher } from "./http/launcher.ts";
export { Share } from "./http/share.ts";
export { Board } from "./store/deployment/board.ts";
export { KeyDirectory } from "./store/deployment/keys/key-directory.ts";
export { Home } from "./store/home/home.ts";
export { Quota } from "./store/limits/quota-object.ts";
export { FileBytes } from "./store/tenant/files/file-bytes.ts";
export { FileDirectory } from "./store/tenant/files/file-directory.ts";
export { ResponseIndex } from "./store/tenant/response-index/response-index.ts";
export { VectorStore } from "./store/tenant/vector-stores/vector-store.ts";
export { Webhooks } from "./store/tenant/webhooks/webhooks.ts";

export default {
  fetch(request, env, context) {
    const answer = app.fetch(request, withObjects(env), context);
    return IS_SERVED ? released(answer) : answer;
  },
} satisfies ExportedHandler<RawEnv>;

// Under `serve`: evaluating the modules has left garbage in a young generation that has grown with it (`cli/serve/workerd.ts`). A usual
// collection would keep the emptied memory.
globalThis.gc?.({ type: "major", flavor: "last-resort" });
