import { readBoundedText } from "@responses-edge/bounded-io/body";
import { type ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import type { TurnName } from "@responses-edge/responses-api/ids";
import { isJsonObject, parseJson } from "@responses-edge/responses-api/json";
import type { BatchEndpoint, BatchLine } from "@responses-edge/responses-api/platform/batches";
import { responseBody } from "@responses-edge/turn/response";
import { createResponse } from "../api/create-response.ts";
import { toShownError } from "../api/faults.ts";
import { moderate } from "../api/moderations.ts";
import { passJson } from "../api/passthrough.ts";
import type { Caller } from "../api/transport.ts";
import type { PassthroughEndpoint } from "../config/index.ts";
import { reportEnded } from "../store/limits/ended-requests.ts";
import type { AnalyticsWriter } from "../telemetry/analytics.ts";
import { type Observation, telemetryOf } from "../telemetry/telemetry.ts";
import type { Tokens } from "./batch-table.ts";

/** One request of a batch, asked as a client would ask it. */

/** Bounds of an answer: its length and its time. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;
const ANSWER_TIMEOUT_MS = 3_600_000;

/** Attempts at a request that the model server fails. */
const MAX_TRIES = 5;

/** The waits between attempts, in milliseconds. A wait that a limit or a model server names overrides them. */
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 30_000;

/** Endpoints that this server answers itself. */
type OwnEndpoint = "/v1/responses" | "/v1/moderations";

/** vLLM's own endpoints, by the names with which a deployment opens them. */
const PASSED: Readonly<Record<Exclude<BatchEndpoint, OwnEndpoint>, PassthroughEndpoint>> = {
  "/v1/chat/completions": "chat/completions",
  "/v1/completions": "completions",
  "/v1/embeddings": "embeddings",
};

/** The model server's endpoint that a batch asks; undefined for one that this server answers itself. */
export function passedEndpoint(endpoint: BatchEndpoint): PassthroughEndpoint | undefined {
  return endpoint === "/v1/responses" || endpoint === "/v1/moderations" ? undefined : PASSED[endpoint];
}

export interface LineAnswer {
  isOk: boolean;
  status: number;
  /** JSON. */
  body: string;
}

export interface Asking {
  /** The name of its turn: a request that is repeated after a crash is stored once. */
  name: TurnName;
  /** The id of the request in the batch's files, and in telemetry. */
  requestId: string;
  analytics: AnalyticsWriter | undefined;
  /** Unix milliseconds after which no further attempt is planned. */
  end: number;
  /** Unix milliseconds at which the batch's time is over. */
  expiry: number;
  signal: AbortSignal;
  /** How often it has failed before, except for faults that pass. */
  tries: number;
  /** Stores the number, so that a crash does not reset it. */
  noteTries: (tries: number) => void;
}

/**
 * Answers a request. Waits for a temporary fault (limits, a server that is away) to pass; gives undefined if it has not passed
 * by `end` or `expiry`. Rejects with the signal's reason when it is aborted.
 */
export async function answerLine(
  callerFor: (length: number) => Caller,
  { url, body }: BatchLine,
  { name, requestId, analytics, end, expiry, signal, noteTries, ...asking }: Asking,
): Promise<LineAnswer | undefined> {
  const length = JSON.stringify(body).length;
  let { tries } = asking;
  for (let waits = 0; ; waits += 1) {
    const caller = callerFor(length);
    const observation = observe(caller, url, requestId, analytics);
    try {
      const answer = await ask({ ...caller, observation }, url, body, name);
      // A response that was cut off is answered with its output so far.
      signal.throwIfAborted();
      observation.answered(200);
      return { isOk: true, status: 200, body: answer };
    } catch (error) {
      const reason: unknown = signal.aborted ? signal.reason : error;
      const fault = toShownError(reason, { requestId, path: url, hasClientLeft: signal.aborted });
      observation.answered(fault.status, fault);
      signal.throwIfAborted();
      const isAway = isOutage(fault);
      if (!isAway) tries += 1;
      const mayPass = isAway || fault.status >= 500;
      const isForNow = fault.headers["x-should-retry"] !== "false";
      if (!mayPass || !isForNow || tries >= MAX_TRIES) {
        return { isOk: false, status: fault.status, body: JSON.stringify(fault.toBody()) };
      }
      if (!isAway) noteTries(tries);
      const wait = retryAfterOf(fault) ?? Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(waits, 10));
      const now = Date.now();
      if (now >= end) return undefined;
      // The wait may last longer than `end`: a retry that began earlier would ignore the server's `Retry-After`.
      await scheduler.wait(Math.min(wait * (1 + Math.random() / 4), Math.max(0, expiry - now)), { signal });
      if (Date.now() >= expiry) return undefined;
    }
  }
}

/** The wait that a limit names in milliseconds, or a model server in seconds; undefined without one. */
function retryAfterOf({ headers }: ApiError): number | undefined {
  const wait = Number(headers["retry-after-ms"] ?? Number(headers["retry-after"] ?? Number.NaN) * 1000);
  return wait >= 0 ? wait : undefined;
}

/** Observes an attempt. */
function observe(
  caller: Caller,
  url: BatchEndpoint,
  requestId: string,
  analytics: AnalyticsWriter | undefined,
): Observation {
  const { config, tenant, identity, waitUntil } = caller;
  const request = { requestId, transport: "batch", endpoint: `POST ${url}`, tenant, keyId: identity.keyId } as const;
  const observation = telemetryOf(config.telemetry).observe(request, { waitUntil, isBrief: true, analytics });
  observation.reportTo((ended) => reportEnded(caller, ended));
  return observation;
}

/** The body of the answer, as JSON text. */
async function ask(caller: Caller, url: BatchEndpoint, body: BatchLine["body"], name: TurnName): Promise<string> {
  for (const field of ["stream", "background"]) {
    if (body[field] === true) {
      throw invalidRequest(field, `'${field}' is not supported in a batch.`, "unsupported_parameter");
    }
  }
  if (url === "/v1/moderations") return JSON.stringify(await moderate(caller, body));
  const passed = passedEndpoint(url);
  if (passed) {
    const answer = await passJson(caller, passed, body);
    const bounds = { maxBytes: MAX_ANSWER_BYTES, timeoutMs: ANSWER_TIMEOUT_MS, signal: caller.signal };
    return readBoundedText(new Response(answer.body), bounds);
  }
  const created = await createResponse(caller, body, {
    name,
    openSink: () => {
      throw new TypeError("A request of a batch has no stream.");
    },
  });
  if (created.kind !== "response") throw new TypeError("A request of a batch has no stream.");
  return responseBody(created.response);
}

/** Tells whether a fault is that of an unreachable, full or silent server, or of a limit, rather than of the request. */
function isOutage({ status, code }: ApiError): boolean {
  return status === 429 || status === 503 || status === 504 || code === "upstream_unreachable";
}

/** The tokens that an answer reports, in the fields of responses or of chat completions. */
export function tokensOf(body: string): Tokens {
  const value = parseJson(body);
  const usage = isJsonObject(value) && isJsonObject(value.usage) ? value.usage : {};
  const of = (...names: string[]) => names.map((name) => usage[name]).find((each) => typeof each === "number") ?? 0;
  const detail = (name: string, ...fields: string[]) => {
    const details = fields.map((field) => usage[field]).find(isJsonObject);
    return typeof details?.[name] === "number" ? details[name] : 0;
  };
  return {
    input: of("input_tokens", "prompt_tokens") as number,
    output: of("output_tokens", "completion_tokens") as number,
    cached: detail("cached_tokens", "input_tokens_details", "prompt_tokens_details"),
    reasoning: detail("reasoning_tokens", "output_tokens_details", "completion_tokens_details"),
  };
}
