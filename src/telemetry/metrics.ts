import type { Attributes, Instrument } from "@responses-edge/otlp";
import { type MeasuredTurn, type Measurements, TOOL_ERROR } from "@responses-edge/turn/contract/measurements";
import {
  CACHED_TOKENS,
  CLIENT_OPERATION_DURATION,
  CLIENT_TIME_TO_FIRST_CHUNK,
  CLIENT_TOKEN_USAGE,
  CLIENTS_LEFT,
  CONVERSATION_WAIT,
  CUTS,
  EXECUTE_TOOL_DURATION,
  HTTP_SERVER_REQUEST_DURATION,
  QUEUED,
  REASONING_TOKENS,
  RESPONSES,
  RETRIES,
  SERVER_REQUEST_DURATION,
  SERVER_TIME_PER_OUTPUT_TOKEN,
  SERVER_TIME_TO_FIRST_TOKEN,
  TAKE_UPS,
} from "./instruments.ts";
import { operationOf, PROVIDER } from "./spans.ts";
import type { WideEvent } from "./wide-event.ts";

/**
 * The metrics of a request. The number of series depends on the server, never on names that clients invent: the
 * operator's models count by name, all others together, and tools by their kind.
 */

/** Records one value. */
export type Record = (instrument: Instrument, attributes: Attributes, value: number) => void;

/** Most operator's models that have series of their own. */
const MAX_MODELS = 200;

/** The name of all other models. */
const OTHER = "_OTHER";

/** The operator's models that have been recorded in this process. */
const knownModels = new Set<string>();

function modelLabel({ model: { upstream }, isOperatorsModel }: MeasuredTurn): string {
  if (isOperatorsModel && knownModels.size < MAX_MODELS) knownModels.add(upstream);
  return knownModels.has(upstream) ? upstream : OTHER;
}

export function recordMetrics(event: WideEvent, measured: Measurements, record: Record): void {
  recordHttp(event, record);
  if (event.queued_ms !== undefined) record(QUEUED, {}, event.queued_ms / 1000);
  // The wait of a run is that of the request that has begun it.
  if (event.conversation_wait_ms !== undefined && event.transport !== "background")
    record(CONVERSATION_WAIT, {}, event.conversation_wait_ms / 1000);
  if (!measured.turn || (event.transport !== "background" && !measured.end && measured.modelCalls.length === 0)) return;
  const model = modelLabel(measured.turn);
  const common = {
    "gen_ai.operation.name": operationOf(event.engine),
    "gen_ai.provider.name": PROVIDER,
    "gen_ai.request.model": model,
  };
  const outcome = event.outcome ?? "failed";
  const failure: Attributes = outcome === "failed" ? { "error.type": event.error ?? OTHER } : {};
  const byModel = { "gen_ai.request.model": model };
  record(SERVER_REQUEST_DURATION, { ...common, ...failure }, event.total_ms / 1000);
  record(RESPONSES, { ...byModel, "responses_edge.outcome": outcome, "responses_edge.transport": event.transport }, 1);
  if (event.first_token_ms !== undefined && outcome !== "failed") {
    record(SERVER_TIME_TO_FIRST_TOKEN, common, event.first_token_ms / 1000);
  }
  count(record, CACHED_TOKENS, byModel, event.cached_tokens);
  count(record, REASONING_TOKENS, byModel, event.reasoning_tokens);
  count(record, RETRIES, byModel, event.retries);
  count(record, TAKE_UPS, byModel, event.take_ups);
  for (const { kind, reason } of measured.cuts) {
    record(CUTS, { ...byModel, "responses_edge.text": kind, "responses_edge.reason": reason }, 1);
  }
  recordModelCalls(measured, common, record);
  recordToolCalls(measured, record);
}

function recordHttp({ endpoint, transport, status, error, total_ms, client_left }: WideEvent, record: Record): void {
  if (client_left) record(CLIENTS_LEFT, { "responses_edge.transport": transport }, 1);
  if (transport !== "http" && transport !== "sse") return;
  const [method = "", route = ""] = endpoint.split(" ");
  const failure: Attributes = status >= 500 ? { "error.type": error ?? String(status) } : {};
  const attributes = { "http.request.method": method, "http.route": route, "http.response.status_code": status };
  record(HTTP_SERVER_REQUEST_DURATION, { ...attributes, ...failure }, total_ms / 1000);
}

function recordModelCalls({ modelCalls }: Measurements, common: Attributes, record: Record): void {
  for (const { begunAt, firstChunkAt, endedAt, error, tokens, replica } of modelCalls) {
    if (endedAt === undefined) continue;
    // The operator names the servers, so that there are as many series as servers.
    const called = { ...common, ...(replica !== undefined && { "responses_edge.server": replica }) };
    const failure: Attributes = error === undefined ? {} : { "error.type": error };
    record(CLIENT_OPERATION_DURATION, { ...called, ...failure }, (endedAt - begunAt) / 1000);
    if (firstChunkAt !== undefined) record(CLIENT_TIME_TO_FIRST_CHUNK, called, (firstChunkAt - begunAt) / 1000);
    if (!tokens) continue;
    record(CLIENT_TOKEN_USAGE, { ...called, "gen_ai.token.type": "input" }, tokens.input);
    record(CLIENT_TOKEN_USAGE, { ...called, "gen_ai.token.type": "output" }, tokens.output);
    if (firstChunkAt === undefined || tokens.output < 2 || error !== undefined) continue;
    record(SERVER_TIME_PER_OUTPUT_TOKEN, common, (endedAt - firstChunkAt) / 1000 / (tokens.output - 1));
  }
}

function recordToolCalls({ toolCalls }: Measurements, record: Record): void {
  for (const { kind, item, begunAt, endedAt, error } of toolCalls) {
    if (item === undefined || endedAt === undefined) continue;
    // A tool's name, and the code of its error, come from the client's server: any text is possible.
    const failure: Attributes = error === undefined ? {} : { "error.type": error === TOOL_ERROR ? error : OTHER };
    const attributes = { "gen_ai.tool.name": kind, "gen_ai.tool.type": "extension", ...failure };
    record(EXECUTE_TOOL_DURATION, attributes, (endedAt - begunAt) / 1000);
  }
}

function count(record: Record, counter: Instrument, attributes: Attributes, value: number | undefined): void {
  if (value !== undefined && value > 0) record(counter, attributes, value);
}
