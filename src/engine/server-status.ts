/**
 * The state of model servers as this isolate has seen it, by their URL. Plain data that all its requests may read and write:
 * a promise that one request has made, no other may wait for.
 */

interface Status {
  /** Unix milliseconds; absent while the server answers. */
  downSince?: number;
  /** When it was last seen to be down. */
  downAt?: number;
  /** The last answer of its `/health`, and when it came. */
  health?: { isGone: boolean; at: number };
  /** When somebody last began to ask. */
  askedAt?: number;
  /** When it last refused `tool_choice: "auto"`: it was started without a parser of calls. */
  refusedAutoAt?: number;
}

const servers = new Map<string, Status>();

export function statusOf(baseUrl: string): Status {
  const known = servers.get(baseUrl);
  if (known) return known;
  const status: Status = {};
  servers.set(baseUrl, status);
  return status;
}

/** The server cannot be reached, or says itself that it is gone. */
export function sawDown(baseUrl: string): void {
  const status = statusOf(baseUrl);
  status.downAt = Date.now();
  status.downSince ??= status.downAt;
}
