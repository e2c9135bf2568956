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
  const calls = countsOf(modelCalls);
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
    accept_ms: since(facts.begunAt, calls.acceptedAt),
    first_token_ms: since(facts.begunAt, calls.firstChunkAt),
    total_ms: facts.endedAt - facts.begunAt,
    input_tokens: tokens?.input,
    cached_tokens: tokens?.cached,
    output_tokens: tokens?.output,
    reasoning_tokens: tokens?.reasoning,
    attempts: measured.attempts === 0 ? undefined : measured.attempts,
    ...(turn && {
      rounds: calls.rounds,
      summaries: calls.summaries,
      tool_calls: toolCounts,
      tool_failures: toolCalls.filter((call) => call.error !== undefined && call.item !== undefined).length,
      retries: calls.retries + measured.failovers,
      take_ups: calls.takeUps,
      cuts: measured.cuts.length,
      rows_written: measured.rowsWritten,
      stored: turn.isStored,
    }),
    client_left: facts.hasClientLeft || hasLeft,
  };
}

/** The model calls of a request: their numbers, and the first times. A summary is no answer. */
function countsOf(calls: readonly ModelCall[]) {
  let [rounds, summaries, retries, takeUps] = [0, 0, 0, 0];
  let acceptedAt: number | undefined;
  let firstChunkAt: number | undefined;
  let before: ModelCall | undefined;
  for (const call of calls) {
    const isSummary = call.purpose === "summary";
    const isSame = (before?.purpose === "summary") === isSummary;
    // It repeats one that did not get an answer.
    if (before?.error !== undefined && isSame && call.purpose !== "take_up") retries += 1;
    if (call.purpose === "take_up") takeUps += 1;
    if (isSummary) summaries += 1;
    else {
      acceptedAt ??= call.acceptedAt;
      firstChunkAt ??= call.firstChunkAt;
      rounds = call.round + 1;
    }
    before = call;
  }
  return { rounds, summaries, retries, takeUps, acceptedAt, firstChunkAt };
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
