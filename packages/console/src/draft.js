import { emptyDraft } from "./request-body.js";
import { recall, remember, session } from "./session.js";

/** The request that is being typed in. It is remembered over a reload, except for tokens of MCP servers and large files. */

const MAX_REMEMBERED_FILES = 1_000_000;

/** Between a change and its being remembered. Milliseconds. */
const PAUSE_MS = 300;

/** @type {import("./request-body.js").Draft} */
export const draft = { ...emptyDraft(), ...recall("draft") };

/** @type {ReturnType<typeof setTimeout> | undefined} */
let waiting;

/** Remembers the draft, soon or when the page is left. */
export function rememberDraft() {
  waiting ??= setTimeout(rememberNow, PAUSE_MS);
}

function rememberNow() {
  if (waiting === undefined) return;
  clearTimeout(waiting);
  waiting = undefined;
  // A user who signs out leaves nothing.
  if (session.who === "unknown") return;
  const { attachments, servers, ...rest } = draft;
  const characters = attachments.reduce((sum, { url }) => sum + url.length, 0);
  remember("draft", {
    ...rest,
    attachments: characters <= MAX_REMEMBERED_FILES ? attachments : [],
    servers: servers.map((server) => ({ ...server, authorization: "" })),
  });
}

addEventListener("pagehide", rememberNow);
