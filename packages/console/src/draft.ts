import { type Draft, emptyDraft, settingsOf } from "./request-body.ts";
import { recall, remember, session } from "./session.ts";

/** The request that the user is editing. A reload keeps it, except for tokens of MCP servers and large files. */

const MAX_REMEMBERED_FILES = 1_000_000;

/** The time from a change until it is saved. Milliseconds. */
const PAUSE_MS = 300;

export const draft: Draft = { ...emptyDraft(), ...recall("draft") };

let waiting: ReturnType<typeof setTimeout> | undefined;

/** Saves the draft after a short time, or when the user leaves the page. */
export function rememberDraft() {
  waiting ??= setTimeout(rememberNow, PAUSE_MS);
}

function rememberNow() {
  if (waiting === undefined) return;
  clearTimeout(waiting);
  waiting = undefined;
  // Signing out deletes the draft.
  if (session.who === "unknown") return;
  const { attachments, input, enterSends } = draft;
  const characters = attachments.reduce((sum, { url }) => sum + url.length, 0);
  remember("draft", {
    ...settingsOf(draft),
    ...{ input, enterSends, attachments: characters <= MAX_REMEMBERED_FILES ? attachments : [] },
  });
}

addEventListener("pagehide", rememberNow);
