import { emptyDraft } from "./request-body.js";
import { recall, remember } from "./session.js";

/** The request that is being typed in. It is remembered over a reload, except for tokens of MCP servers and large files. */

const MAX_REMEMBERED_FILES = 1_000_000;

/** @type {import("./request-body.js").Draft} */
export const draft = { ...emptyDraft(), ...recall("draft") };

export function rememberDraft() {
  const { attachments, servers, ...rest } = draft;
  const characters = attachments.reduce((sum, { url }) => sum + url.length, 0);
  remember("draft", {
    ...rest,
    attachments: characters <= MAX_REMEMBERED_FILES ? attachments : [],
    servers: servers.map((server) => ({ ...server, authorization: "" })),
  });
}
