import type { Measurements, ModelCall } from "@responses-edge/turn/contract/measurements";

/** The wide event of a request: everything that is reported of it, on one line. docs/telemetry.md explains each field. */
export interface WideEvent {
  level: "info" | "error";
  event: "request";
  request_id: string;
  trace_id?: string;
  tenant?: string;
  key_id?: string;
  endpoint: string;
  transport: Transport;
  model?: string;
  upstream_model?: string;
  engine?: string;
  replica?: string;
  status: number;
  outcome?: string;
  error?: string;
  upstream_error?: string;
  response_id?: string;
  conversation_id?: string;
  conversation_wait_ms?: number;
  queued_ms?: number;
  accept_ms?: number;
  first_token_ms?: number;
  total_ms: number;
  input_tokens?: number;
  cached_tokens?: number;
  output_tokens?: number;
  reasoning_tokens?: number;
  rounds?: number;
  summaries?: number;
  tool_calls?: Record<string, number>;
  tool_failures?: number;
  attempts?: number;
  retries?: number;
  take_ups?: number;
  cuts?: number;
  rows_written?: number;
  stored?: boolean;
  client_left: boolean;
}

/**
 * `background` is a run in its home. A run under an `Idempotency-Key` is one, too, because it does not end with its client.
 * `batch` is a request of a batch.
 */
export type Transport = "http" | "sse" | "websocket" | "background" | "batch";

/** The status of a request whose client has left before it was answered (nginx's). It is not an error. */
const CLIENT_CLOSED_REQUEST = 499;

/** Clients may send any model name; longer ones are cut. */
const MAX_NAME_LENGTH = 256;

/** The facts of a request that its transport knows. */
export interface RequestFacts {
  requestId: string;
  /** Method and route, such as `POST /v1/responses`; never the path itself. */
  endpoint: string;
  transport: Transport;
  tenant: string | undefined;
  keyId: string | undefined;
  /** The model that the request names, until the one that answers is known. */
  model: string | undefined;
  /** The HTTP status, or its equivalent on other transports. */
  status: number;
  /** The code of the error in the answer. */
  error: string | undefined;
  hasClientLeft: boolean;
  /** Unix milliseconds. */
  begunAt: number;
  endedAt: number;
}

export function toWideEvent(facts: RequestFacts, measured: Measurements): WideEvent {
  const { turn, asked, end, trace, modelCalls, toolCalls, toolCounts } = measured;
  const error = facts.error ?? end?.error;
  const model = turn?.model ?? asked?.model;
  const tokens = end?.tokens ?? asked?.tokens;
  const hasLeft = facts.status === CLIENT_CLOSED_REQUEST;
  const spoken = modelCalls.filter(({ purpose }) => purpose !== "summary");
  const accepted = spoken.find((call) => call.acceptedAt !== undefined);
  const first = spoken.find((call) => call.firstChunkAt !== undefined);
  return {
    level: error === undefined || hasLeft ? "info" : "error",
    event: "request",
    request_id: facts.requestId,
    trace_id: trace?.traceId,
    tenant: facts.tenant,
    key_id: facts.keyId,
    endpoint: facts.endpoint,
    transport: facts.transport,
    model: (model?.name ?? facts.model)?.slice(0, MAX_NAME_LENGTH),
    upstream_model: model?.upstream.slice(0, MAX_NAME_LENGTH),
    engine: turn?.model.engine,
    // The last server, if a call continued elsewhere.
    replica: modelCalls.at(-1)?.replica ?? asked?.replica,
    status: facts.status,
    outcome: end?.status,
    error,
    upstream_error: measured.upstreamError,
    response_id: turn?.responseId,
    conversation_id: turn?.conversation,
    conversation_wait_ms: measured.waitedMs,
    queued_ms: measured.queuedMs,
    accept_ms: since(facts.begunAt, accepted?.acceptedAt),
    first_token_ms: since(facts.begunAt, first?.firstChunkAt),
    total_ms: facts.endedAt - facts.begunAt,
    input_tokens: tokens?.input,
    cached_tokens: tokens?.cached,
    output_tokens: tokens?.output,
    reasoning_tokens: tokens?.reasoning,
    attempts: measured.attempts === 0 ? undefined : measured.attempts,
    ...(turn && {
      rounds: (spoken.at(-1)?.round ?? -1) + 1,
      summaries: modelCalls.length - spoken.length,
      tool_calls: toolCounts,
      tool_failures: toolCalls.filter((call) => call.error !== undefined && call.item !== undefined).length,
      retries: modelCalls.filter(isRetry).length + measured.failovers,
      take_ups: modelCalls.filter(({ purpose }) => purpose === "take_up").length,
      cuts: measured.cuts.length,
      rows_written: measured.rowsWritten,
      stored: turn.isStored,
    }),
    client_left: facts.hasClientLeft || hasLeft,
  };
}

/** Tells whether a call repeats one that did not get an answer. */
export function isRetry({ purpose }: ModelCall, index: number, calls: readonly ModelCall[]): boolean {
  const before = calls[index - 1];
  const isSame = (before?.purpose === "summary") === (purpose === "summary");
  return before?.error !== undefined && isSame && purpose !== "take_up";
}

function since(from: number, to: number | undefined): number | undefined {
  return to === undefined ? undefined : Math.max(0, to - from);
}

/** Tells whether an event is logged: always with an error, otherwise by the configured share. */
export function isLogged(
  { level }: WideEvent,
  { events, ratio }: { events: "all" | "errors" | "none"; ratio: number },
) {
  if (events === "none") return false;
  if (level === "error") return true;
  return events === "all" && (ratio >= 1 || Math.random() < ratio);
}
