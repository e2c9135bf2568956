/** The page loads these when the first view is up, or when one is needed: the other views, and the turns of a chat. */
import "./main.ts";

export { batchesView } from "./batches.ts";
export { chatParts } from "./chat-parts.ts";
export { connectView } from "./connect.ts";
export { decisionsView } from "./decisions.ts";
export { filesView } from "./files.ts";
export { lookView } from "./look.ts";
export { moderationView } from "./moderation.ts";
export { operateView } from "./operate.ts";
export { removePreset, savePreset } from "./preset-questions.ts";
export { loadStores, moreForm, toolsForm, toolsTemplate } from "./request-tools.ts";
export { webhooksView } from "./webhooks.ts";
