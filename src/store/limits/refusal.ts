import { ApiError } from "@responses-edge/responses-api/errors";
import { type Obstacle, type RateStatus, type Status, type StoredLimit, TENANT } from "@responses-edge/usage-limits";

/**
 * Refusals of limits for clients: OpenAI's headers, codes and messages. Codex reads the time in "Please try again in
 * 11.054s." and treats `insufficient_quota` as final; the SDKs read `retry-after-ms`, `retry-after` and
 * `x-should-retry`.
 */

type Headers = Record<string, string>;

/** `x-ratelimit-*` for limits per minute. */
export function rateHeaders({ requests, tokens }: Status): Headers {
  return { ...headersOf("requests", requests), ...headersOf("tokens", tokens) };
}

function headersOf(kind: "requests" | "tokens", status: RateStatus | undefined): Headers {
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
  if (ms < 60_000) return seconds(ms);
  return `${Math.floor(ms / 60_000)}m${Math.floor((ms % 60_000) / 1000)}s`;
}

function seconds(ms: number): string {
  return `${Math.ceil(ms) / 1000}s`;
}

/** Whom a limit is of: a key, or an end user of it, by an id for counting and the name that its requests have. */
export interface Who {
  tenant: string;
  keyId: string;
  endUser?: { id: string; name: string } | undefined;
}

/** The 429 of what a limit does not let through. `who` names whom it is a limit of. */
export function limitExceeded(obstacle: Obstacle, status: Status, who: Who): ApiError {
  const { kind, limit, retryMs } = obstacle;
  const whole = obstacle.of === "key" && who.keyId !== TENANT ? `key ${who.keyId}` : `organization ${who.tenant}`;
  const whose = who.endUser ? `end user '${who.endUser.name}' of ${whole}` : whole;
  const headers = { ...rateHeaders(status), ...retryHeaders(retryMs) };
  const final = { ...rateHeaders(status), "x-should-retry": "false" };
  if (isStored(kind)) return storageExceeded({ ...obstacle, kind }, whose, status);
  const quota = (message: string) => refused("insufficient_quota", "insufficient_quota", message, final);
  if (kind === "budget_tokens" || kind === "budget_usd") return quota(budgetMessage(obstacle, whose));
  const [unit, type] = RATES[kind];
  if (limit === 0) return quota(`You exceeded your current quota: ${whose} may not use any ${unit}.`);
  const used = Math.min(limit, Math.ceil(obstacle.used));
  const reached = `Rate limit reached for ${whose} on ${unit}: Limit ${limit}, Used ${used}, Requested ${Math.ceil(obstacle.wanted)}.`;
  const advice =
    retryMs === undefined
      ? "The request is too large for this limit: send a shorter input, or a smaller 'max_output_tokens'."
      : `Please try again in ${seconds(retryMs)}.`;
  return refused(type, "rate_limit_exceeded", `${reached} ${advice}`, headers);
}

function refused(type: string, code: string, message: string, headers: Headers, status = 429): ApiError {
  return new ApiError({ status, type, code, message, headers });
}

/** The unit of each limit, and OpenAI's type of its error. */
const RATES = {
  requests: ["requests per min (RPM)", "requests"],
  reads: ["reads per min", "requests"],
  tokens: ["tokens per min (TPM)", "tokens"],
  slots: ["concurrent requests", "rate_limit_error"],
  runs: ["background responses in progress", "rate_limit_error"],
} as const;

const THINGS = { stored_bytes: "bytes", stored_responses: "responses", stored_conversations: "conversations" } as const;

function isStored(kind: string): kind is StoredLimit {
  return kind in THINGS;
}

/**
 * The 429 of a limit of what is stored; a request that alone is more than it is a 413. Waiting makes no room, unless it is but
 * reserved by requests in progress.
 */
function storageExceeded(
  { kind, limit, used, wanted, retryMs = 0 }: Obstacle & { kind: StoredLimit },
  whose: string,
  status: Status,
): ApiError {
  const isReserved = used + wanted <= limit;
  const stored = `${used} are stored${isReserved ? ", requests in progress have reserved others" : ""}`;
  const advice = isReserved
    ? `Please try again in ${seconds(retryMs)}.`
    : "Delete responses or conversations, or send 'store: false'.";
  const message = `You exceeded your storage quota: ${whose} may store ${limit} ${THINGS[kind]} ('${kind}'), ${stored}, and this request may need ${wanted}. ${advice}`;
  const headers = { ...rateHeaders(status), ...retryHeaders(isReserved ? retryMs : undefined) };
  return refused(
    "insufficient_quota",
    "storage_quota_exceeded",
    message,
    headers,
    wanted > limit && limit > 0 ? 413 : 429,
  );
}

/** The SDKs wait for no longer time than this: above it they heed nothing, and try again at once. */
const MAX_RETRY_MS = 60_000;

/** Undefined: waiting does not help. */
function retryHeaders(afterMs: number | undefined): Headers {
  if (afterMs === undefined) return { "x-should-retry": "false" };
  const ms = Math.min(afterMs, MAX_RETRY_MS);
  return {
    "retry-after": String(Math.ceil(ms / 1000)),
    "retry-after-ms": String(Math.ceil(ms)),
    "x-should-retry": "true",
  };
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
