/** Headers by which agents name the session that a request is part of, the most telling ones first. */
const SESSION_HEADERS = [
  "session-id", // Codex
  "session_id",
  "thread-id", // Codex
  "x-claude-code-session-id", // Claude Code
  "x-session-affinity", // OpenCode
  "x-session-id",
];

/** Longer ones name nothing. */
const MAX_LENGTH = 256;

/** The session that a request says it is part of; undefined where it does not. */
export function clientSession(headers: Headers): string | undefined {
  for (const name of SESSION_HEADERS) {
    const value = headers.get(name);
    if (value !== null && value !== "" && value.length <= MAX_LENGTH) return `${name}:${value}`;
  }
  return undefined;
}
