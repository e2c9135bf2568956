import type { Instrument } from "@responses-edge/otlp";

/**
 * The metrics, each once, for OTLP and Prometheus alike. Names, units and bounds of `gen_ai.*` are those of the
 * conventions (docs/telemetry.md names the commit); `http.server.request.duration` is one of OpenTelemetry's stable
 * ones for HTTP. A metric that no convention names is `responses_edge.*`.
 */

/** The instrumentation scope: this server. */
export const SCOPE = { name: "responses-edge", version: "0.1.0" };

/** Bounds of most `gen_ai.*` durations, in seconds. */
const DURATIONS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

export const CLIENT_TOKEN_USAGE: Instrument = {
  name: "gen_ai.client.token.usage",
  unit: "{token}",
  description: "Number of input and output tokens used by one call of the model server.",
  bounds: [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864],
};

export const CLIENT_OPERATION_DURATION: Instrument = {
  name: "gen_ai.client.operation.duration",
  unit: "s",
  description: "Duration of one call of the model server.",
  bounds: DURATIONS,
};

export const CLIENT_TIME_TO_FIRST_CHUNK: Instrument = {
  name: "gen_ai.client.operation.time_to_first_chunk",
  unit: "s",
  description: "From a call of the model server to the first chunk of its stream.",
  bounds: DURATIONS,
};

export const SERVER_REQUEST_DURATION: Instrument = {
  name: "gen_ai.server.request.duration",
  unit: "s",
  description: "From a request for a response to the response's end.",
  bounds: DURATIONS,
};

export const SERVER_TIME_TO_FIRST_TOKEN: Instrument = {
  name: "gen_ai.server.time_to_first_token",
  unit: "s",
  description: "From a request for a response to the model's first token, for successful responses.",
  bounds: [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0],
};

export const SERVER_TIME_PER_OUTPUT_TOKEN: Instrument = {
  name: "gen_ai.server.time_per_output_token",
  unit: "s",
  description: "Time for each output token after the first of a call of the model server, for successful responses.",
  bounds: [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5],
};

export const EXECUTE_TOOL_DURATION: Instrument = {
  name: "gen_ai.execute_tool.duration",
  unit: "s",
  description: "Duration of one call of a hosted tool.",
  bounds: DURATIONS,
};

export const HTTP_SERVER_REQUEST_DURATION: Instrument = {
  name: "http.server.request.duration",
  unit: "s",
  description: "Duration of one HTTP request, to the end of its answer.",
  bounds: [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10],
};

export const CONVERSATION_WAIT: Instrument = {
  name: "responses_edge.conversation.wait",
  unit: "s",
  description: "From a request to its entering the conversation to which it adds, or to its refusal.",
  bounds: DURATIONS,
};

export const QUEUED: Instrument = {
  name: "responses_edge.queued",
  unit: "s",
  description: "The time that a request has waited for saturated model servers, of requests that have.",
  bounds: DURATIONS,
};

export const RESPONSES: Instrument = {
  name: "responses_edge.responses",
  unit: "{response}",
  description: "Ended responses, by outcome.",
};

export const CACHED_TOKENS: Instrument = {
  name: "responses_edge.tokens.cached",
  unit: "{token}",
  description: "Input tokens from the model server's prefix cache.",
};

export const REASONING_TOKENS: Instrument = {
  name: "responses_edge.tokens.reasoning",
  unit: "{token}",
  description: "Output tokens of reasoning.",
};

export const RETRIES: Instrument = {
  name: "responses_edge.retries",
  unit: "{retry}",
  description: "Calls of the model server that repeat a failed one.",
};

export const TAKE_UPS: Instrument = {
  name: "responses_edge.take_ups",
  unit: "{take_up}",
  description: "Generations that broke off and resumed.",
};

export const CUTS: Instrument = {
  name: "responses_edge.cuts",
  unit: "{cut}",
  description: "Generations that this server has broken off, because they repeated themselves or thought too long.",
};

export const CLIENTS_LEFT: Instrument = {
  name: "responses_edge.clients_left",
  unit: "{client}",
  description: "Requests whose client disconnected before their end.",
};

export const FILES_STORED: Instrument = {
  name: "responses_edge.files.stored",
  unit: "{file}",
  description: "Files that were uploaded, imported, or written by programs of a code interpreter.",
};

export const FILE_BYTES_STORED: Instrument = {
  name: "responses_edge.files.stored_bytes",
  unit: "By",
  description: "Bytes of these files.",
};

export const INGESTED_FILES: Instrument = {
  name: "responses_edge.ingestion.files",
  unit: "{file}",
  description: "Files of vector stores that have become searchable, failed, or were cancelled.",
};

export const INGESTED_CHUNKS: Instrument = {
  name: "responses_edge.ingestion.chunks",
  unit: "{chunk}",
  description: "Chunks of files that were embedded and indexed.",
};

export const EXPORTS_DROPPED: Instrument = {
  name: "responses_edge.export.dropped",
  unit: "{batch}",
  description: "Batches of telemetry that no collector accepted.",
};

export const INSTRUMENTS: readonly Instrument[] = [
  CLIENT_TOKEN_USAGE,
  CLIENT_OPERATION_DURATION,
  CLIENT_TIME_TO_FIRST_CHUNK,
  SERVER_REQUEST_DURATION,
  SERVER_TIME_TO_FIRST_TOKEN,
  SERVER_TIME_PER_OUTPUT_TOKEN,
  EXECUTE_TOOL_DURATION,
  HTTP_SERVER_REQUEST_DURATION,
  CONVERSATION_WAIT,
  QUEUED,
  RESPONSES,
  CACHED_TOKENS,
  REASONING_TOKENS,
  RETRIES,
  TAKE_UPS,
  CUTS,
  CLIENTS_LEFT,
  FILES_STORED,
  FILE_BYTES_STORED,
  INGESTED_FILES,
  INGESTED_CHUNKS,
  EXPORTS_DROPPED,
];

/**
 * The metrics that have the tenant where `PROMETHEUS_TENANTS` asks for it: its responses, their time and their tokens. The others are
 * about this server, and would have thousands of series.
 */
export const OF_TENANTS: ReadonlySet<Instrument> = new Set([
  ...[RESPONSES, CLIENT_TOKEN_USAGE, CACHED_TOKENS, REASONING_TOKENS, SERVER_REQUEST_DURATION],
  SERVER_TIME_TO_FIRST_TOKEN,
]);
