import { ApiError } from "@responses-edge/responses-api/errors";
import { isStoredLimit, type StoredLimit } from "./limits.ts";
import { type Obstacle, type RateStatus, type Status, TENANT } from "./limits-ledger.ts";

/**
 * Refusals of limits for clients: OpenAI's headers, codes and messages. Codex reads the time in "Please try again in
 * 11.054s." and treats `insufficient_quota` as final; the SDKs read `retry-after-ms`, `retry-after` and
 * `x-should-retry`.
 */

/** `x-ratelimit-*` for limits per minute. */
export function rateHeaders({ requests, tokens }: Status): Record<string, string> {
  return { ...headersOf("requests", requests), ...headersOf("tokens", tokens) };
}

function headersOf(kind: "requests" | "tokens", status: RateStatus | undefined): Record<string, string> {
  if (!status) return {};
  return {
    [`x-ratelimit-limit-${kind}`]: String(status.limit),
    [`x-ratelimit-remaining-${kind}`]: String(Math.max(0, Math.floor(status.remaining))),
    [`x-ratelimit-reset-${kind}`]: duration(status.resetMs),
  };
}

/** As OpenAI writes them: `120ms`, `8.64s`, `6m0s`. */
function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)}ms`;
  if (ms < 60_000) return `${round(ms / 1000)}s`;
  return `${Math.floor(ms / 60_000)}m${Math.floor((ms % 60_000) / 1000)}s`;
}

function round(seconds: number): number {
  return Math.ceil(seconds * 1000) / 1000;
}

/** Whom a limit is of: a key, or an end user of it, by an id for counting and the name that its requests have. */
export interface Who {
  tenant: string;
  keyId: string;
  endUser?: { id: string; name: string } | undefined;
}

/** The 429 of what a limit does not let through. `who` names whom it is a limit of. */
export function limitExceeded(obstacle: Obstacle, status: Status, who: Who): ApiError {
  const headers = rateHeaders(status);
  const { kind, limit, retryMs } = obstacle;
  const whole = obstacle.of === "key" && who.keyId !== TENANT ? `key ${who.keyId}` : `organization ${who.tenant}`;
  const whose = who.endUser ? `end user '${who.endUser.name}' of ${whole}` : whole;
  if (isStoredLimit(kind)) return storageExceeded(kind, obstacle, whose, headers);
  if (kind === "budget_tokens" || kind === "budget_usd") return quotaExceeded(budgetMessage(obstacle, whose), headers);
  if (limit === 0)
    return quotaExceeded(`You exceeded your current quota: ${whose} may not use any ${UNITS[kind]}.`, headers);
  const used = Math.min(limit, Math.ceil(obstacle.used));
  const reached = `Rate limit reached for ${whose} on ${UNITS[kind]}: Limit ${limit}, Used ${used}, Requested ${Math.ceil(obstacle.wanted)}.`;
  if (retryMs === undefined) {
    return new ApiError({
      ...LIMITED,
      type: TYPES[kind],
      message: `${reached} The request is too large for this limit: send a shorter input, or a smaller 'max_output_tokens'.`,
      headers: { ...headers, "x-should-retry": "false" },
    });
  }
  return new ApiError({
    ...LIMITED,
    type: TYPES[kind],
    message: `${reached} Please try again in ${round(retryMs / 1000)}s.`,
    headers: { ...headers, ...retryHeaders(retryMs) },
  });
}

const THINGS = { stored_bytes: "bytes", stored_responses: "responses", stored_conversations: "conversations" } as const;

/**
 * The 429 of a limit of what is stored; a request that alone is more than it is a 413. Waiting makes no room, unless it is but
 * reserved by requests in progress.
 */
function storageExceeded(
  kind: StoredLimit,
  { limit, used, wanted, retryMs = 0 }: Obstacle,
  whose: string,
  headers: Headers,
): ApiError {
  const isReserved = used + wanted <= limit;
  const stored = `${used} are stored${isReserved ? ", requests in progress have reserved others" : ""}`;
  const advice = isReserved
    ? `Please try again in ${round(retryMs / 1000)}s.`
    : "Delete responses or conversations, or send 'store: false'.";
  return new ApiError({
    status: wanted > limit && limit > 0 ? 413 : 429,
    type: "insufficient_quota",
    code: "storage_quota_exceeded",
    message: `You exceeded your storage quota: ${whose} may store ${limit} ${THINGS[kind]} ('${kind}'), ${stored}, and this request may need ${wanted}. ${advice}`,
    headers: { ...headers, ...(isReserved ? retryHeaders(retryMs) : { "x-should-retry": "false" }) },
  });
}

/** The SDKs wait for no longer time than this: above it they heed nothing, and try again at once. */
const MAX_RETRY_MS = 60_000;

function retryHeaders(afterMs: number): Headers {
  const ms = Math.min(afterMs, MAX_RETRY_MS);
  return {
    "retry-after": String(Math.ceil(ms / 1000)),
    "retry-after-ms": String(Math.ceil(ms)),
    "x-should-retry": "true",
  };
}

type Headers = Record<string, string>;

const LIMITED = { status: 429, code: "rate_limit_exceeded" };

const UNITS = {
  requests: "requests per min (RPM)",
  reads: "reads per min",
  tokens: "tokens per min (TPM)",
  slots: "concurrent requests",
  runs: "background responses in progress",
} as const;

/** OpenAI's types of these errors. */
const TYPES = {
  requests: "requests",
  reads: "requests",
  tokens: "tokens",
  slots: "rate_limit_error",
  runs: "rate_limit_error",
} as const;

function quotaExceeded(message: string, headers: Record<string, string>): ApiError {
  const code = "insufficient_quota";
  return new ApiError({ status: 429, type: code, code, message, headers: { ...headers, "x-should-retry": "false" } });
}

function budgetMessage({ kind, limit, used, wanted, resetsAt }: Obstacle, whose: string): string {
  const amount = (value: number) =>
    kind === "budget_usd" ? `$${(Math.max(0, value) / 1e6).toFixed(6)}` : `${Math.ceil(Math.max(0, value))} tokens`;
  const anew = resetsAt === undefined ? "" : ` It resets at ${new Date(resetsAt).toISOString()}.`;
  return `You exceeded your current quota: the budget of ${whose} is ${amount(limit)}, of which ${amount(used)} are used or reserved, and this request needs ${amount(wanted)}.${anew}`;
}

/**
 * The 503 if limits cannot be checked: no request is admitted without. An error of the API, such as that of a damaged
 * quota, stays the same.
 */
export function limitsUnavailable(cause?: unknown): ApiError {
  if (cause instanceof ApiError) return cause;
  return new ApiError({
    status: 503,
    message: "The limits of this API key cannot be checked at the moment. Please retry in a few seconds.",
    code: "limits_unavailable",
    headers: { "retry-after": "2" },
  });
}
