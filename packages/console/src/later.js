/** The page loads these when the first view is up, or when one is needed: the other views, and the requests of *Try* with their answers. */
import "./main.js";

export { batchesView } from "./batches.js";
export { decisionsView } from "./decisions.js";
export { filesView } from "./files.js";
export { lookView } from "./look.js";
export { moderationView } from "./moderation.js";
export { operateView } from "./operate.js";
export { Transcript } from "./transcript.js";
export { treeView } from "./tree.js";
export { webhooksView } from "./webhooks.js";
