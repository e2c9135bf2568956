import { createHash } from "node:crypto";

/**
 * Names the requests that do well at one replica: what stands in `X-Session-ID` to the model server, for a router in
 * front of several. It is the client's `prompt_cache_key`, or what it was told to say again (`x-codex-turn-state`),
 * hashed with its tenant: the router learns nothing of either. Undefined where the client says neither.
 */
export function upstreamSession(
  tenant: string,
  promptCacheKey: string | null | undefined,
  turnState: string | undefined,
): string | undefined {
  const key = promptCacheKey ?? turnState;
  return key === undefined ? undefined : createHash("sha256").update(`${tenant}\n${key}`).digest("base64url");
}
