import { randomUUID } from "node:crypto";

/** Headers by which agents name the session that a request is part of. */

/** The most telling ones first. */
const SESSION_HEADERS = [
  "session-id", // Codex
  "session_id",
  "thread-id", // Codex
  "x-claude-code-session-id", // Claude Code
  "x-session-affinity", // OpenCode
  "x-session-id",
];

/** Longer values name nothing. UTF-16 units. */
const MAX_LENGTH = 256;

/** The session that a request says it is part of; undefined where it does not. */
export function clientSession(headers: Headers): string | undefined {
  for (const name of SESSION_HEADERS) {
    const value = headers.get(name);
    if (value !== null && value !== "" && value.length <= MAX_LENGTH) return `${name}:${value}`;
  }
  return undefined;
}

/** The Codex CLI (0.169) sends what this header of an answer said with all further requests of its turn. */
export const CODEX_TURN_STATE = "x-codex-turn-state";

/** The session that a request of Codex's sends again, or is to send from now on. Undefined for all other clients. */
export function codexTurnState(headers: Headers): string | undefined {
  const state = headers.get(CODEX_TURN_STATE);
  if (state !== null && state.length <= MAX_LENGTH) return state;
  return headers.has("x-codex-turn-metadata") ? randomUUID() : undefined;
}
