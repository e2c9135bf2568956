/** The views that are not shown first: the page loads them when it is idle, or when one is asked for. */
export { filesView } from "./files.js";
export { lookView } from "./look.js";
export { operateView } from "./operate.js";
export { treeView } from "./tree.js";
