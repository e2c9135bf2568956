/** The page loads these when the first view is up, or when one is needed: the other views, and the requests of *Try* with their answers. */
import "./main.ts";

export { batchesView } from "./batches.ts";
export { connectView } from "./connect.ts";
export { decisionsView } from "./decisions.ts";
export { filesView } from "./files.ts";
export { lookView } from "./look.ts";
export { moderationView } from "./moderation.ts";
export { operateView } from "./operate.ts";
export { Transcript } from "./transcript.ts";
export { treeView } from "./tree.ts";
export { webhooksView } from "./webhooks.ts";
