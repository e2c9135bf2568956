import { randomUUID } from "node:crypto";

/** What the Codex CLI sends and takes beside the API (0.169). */

/** Codex sends what this header of an answer said with all further requests of its turn. */
export const CODEX_TURN_STATE = "x-codex-turn-state";

/** Longer ones are none of ours. */
const MAX_STATE_LENGTH = 256;

/** What a request of Codex's says again, or is told to; undefined for all other clients. */
export function codexTurnState(headers: Headers): string | undefined {
  const state = headers.get(CODEX_TURN_STATE);
  if (state !== null && state.length <= MAX_STATE_LENGTH) return state;
  return headers.has("x-codex-turn-metadata") ? randomUUID() : undefined;
}
