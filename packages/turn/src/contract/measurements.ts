import { newSpanId, type Trace, traceparent } from "@responses-edge/otlp";
import type { ApiError } from "@responses-edge/responses-api/errors";
import type { Usage } from "@responses-edge/responses-api/response";
import type { Model, ServerAttempt } from "./engine.ts";
import type { PendingCall, ToolOutcome } from "./tool-session.ts";

/**
 * Measurements of a request, for its wide event, its spans and the metrics (docs/telemetry.md): numbers and names,
 * never content. One plain object for each request whose measurements are wanted, filled for each model call and tool
 * call. Nothing here runs for each token.
 *
 * All times are Unix milliseconds.
 */
export interface Measurements {
  /** The request's position in its trace; undefined if traces are neither kept nor passed on. */
  readonly trace: Trace | undefined;
  /** Calls of the model server that generate, in order; at most `MAX_MODEL_CALLS` are kept. */
  readonly modelCalls: ModelCall[];
  /** Calls of hosted tools, in the order in which they began; at most `MAX_TOOL_CALLS` are kept. */
  readonly toolCalls: ToolCall[];
  /** The number of calls of each kind of tool. */
  readonly toolCounts: Record<string, number>;
  /** Facts that are known once the turn is assembled. */
  turn: MeasuredTurn | undefined;
  /** The model that a request without a turn has asked (decisions, moderations, requests that are passed on), and what it took. */
  asked: { model: Pick<Model, "name" | "upstream">; replica?: string; tokens?: Tokens } | undefined;
  /** Generations that this server has broken off because of their end. */
  readonly cuts: { kind: string; reason: string }[];
  /** The number of further model calls. */
  omittedCalls: number;
  /** The time that requests have waited for saturated model servers, in milliseconds; undefined if none has. */
  queuedMs: number | undefined;
  /** How often a model call was repeated at another server because one could not answer. */
  failovers: number;
  /** HTTP requests to model servers for an answer. */
  attempts: number;
  /** The last text of a model server about a fault of its own. It is the server's, and bounded (`ApiError`). */
  upstreamError: string | undefined;
  /** The time until the request had the conversation to which it adds, or was refused: other turns may have it before. */
  conversation: { begunAt: number; endedAt: number } | undefined;
  /** That time in milliseconds, with the waits of a run before its process had it. */
  waitedMs: number | undefined;
  /** Rows written to store the turn. */
  rowsWritten: number;
  /** How the turn ended. */
  end: { status: string; error: string | undefined; message?: string | undefined; tokens: Tokens } | undefined;
}

export interface MeasuredTurn {
  model: Model;
  /** The model is the operator's: configured by name, or loaded by a server at its start, and not an adapter. */
  isOperatorsModel: boolean;
  responseId: string;
  conversation: string | undefined;
  isStored: boolean;
  /** The request's settings that the conventions name; none of them is content. */
  settings: { maxTokens: number | undefined; temperature: number | undefined; topP: number | undefined };
}

export interface Tokens {
  input: number;
  cached: number;
  output: number;
  reasoning: number;
}

export interface ModelCall {
  readonly span: string;
  /** The round in which the model is asked, from 0. */
  readonly round: number;
  /** The purpose of a model call: a round, the continuation of a round, or a summary. */
  readonly purpose: "round" | "take_up" | "summary";
  readonly begunAt: number;
  /** When the model server accepted the prompt. */
  acceptedAt: number | undefined;
  /** When the first chunk of its stream came. */
  firstChunkAt: number | undefined;
  endedAt: number | undefined;
  /** The model's name at its server. */
  readonly model: string;
  /** The model server that was asked. */
  replica: string | undefined;
  /** The time that it has waited for saturated model servers, in milliseconds. */
  queuedMs: number;
  /** HTTP requests for its answer, also to other servers that could not give it. */
  attempts: number;
  tokens: Tokens | undefined;
  finishReason: string | undefined;
  /** The code of the error that it ended with. */
  error: string | undefined;
}

export interface ToolCall {
  readonly span: string;
  /** The `kind` of the hosted tool. */
  readonly kind: string;
  /** As the model names the tool; of a list of tools, the server's label. */
  readonly name: string;
  /** The id of its item; undefined for a list of tools. */
  readonly item: string | undefined;
  readonly begunAt: number;
  endedAt: number | undefined;
  /** The class of error that it ended with. */
  error: string | undefined;
}

/** Most model calls in one request's measurements. */
const MAX_MODEL_CALLS = 128;
const MAX_TOOL_CALLS = 256;
const MAX_NAME_LENGTH = 128;

export function newMeasurements(trace?: Trace): Measurements {
  return {
    trace,
    modelCalls: [],
    toolCalls: [],
    toolCounts: {},
    turn: undefined,
    asked: undefined,
    cuts: [],
    omittedCalls: 0,
    queuedMs: undefined,
    failovers: 0,
    attempts: 0,
    upstreamError: undefined,
    conversation: undefined,
    waitedMs: undefined,
    rowsWritten: 0,
    end: undefined,
  };
}

/** Notes that a request has waited for a saturated model server. */
export function noteWaited(measured: Measurements, ms: number): void {
  measured.queuedMs = (measured.queuedMs ?? 0) + ms;
  const call = measured.modelCalls.at(-1);
  if (call && call.endedAt === undefined) call.queuedMs += ms;
}

/** Does work that waits for a conversation, and measures it if measurements are wanted. Rejects as the work does. */
export async function untilEntered<T>(measured: Measurements | undefined, work: () => Promise<T>): Promise<T> {
  const begunAt = Date.now();
  try {
    return await work();
  } finally {
    const endedAt = Date.now();
    if (measured) {
      measured.conversation = { begunAt, endedAt };
      measured.waitedMs = (measured.waitedMs ?? 0) + endedAt - begunAt;
    }
  }
}

/** Notes the beginning of a model call. The functions below fill the record that this gives. */
export function beginModelCall(
  measured: Measurements,
  { now, ...of }: Pick<ModelCall, "round" | "purpose" | "model"> & { now: number },
): ModelCall {
  const { trace, modelCalls } = measured;
  const call: ModelCall = {
    span: trace?.isKept ? newSpanId() : "",
    ...of,
    begunAt: now,
    acceptedAt: undefined,
    firstChunkAt: undefined,
    endedAt: undefined,
    replica: undefined,
    queuedMs: 0,
    attempts: 0,
    tokens: undefined,
    finishReason: undefined,
    error: undefined,
  };
  if (modelCalls.length < MAX_MODEL_CALLS) modelCalls.push(call);
  else {
    // The last entry is the call in progress, whose span is sent to the model server.
    modelCalls[MAX_MODEL_CALLS - 1] = call;
    measured.omittedCalls += 1;
  }
  return call;
}

/** Notes a request to a model server for an answer, which belongs to the model call in progress, if there is one. */
export function noteAttempt(measured: Measurements, { text }: Pick<ServerAttempt, "text">): void {
  measured.attempts += 1;
  measured.upstreamError = text ?? measured.upstreamError;
  const call = measured.modelCalls.at(-1);
  if (call && call.endedAt === undefined) call.attempts += 1;
}

/** Notes the end of the model call in progress, and gives it, if there is one. `error`: what ended it, or a code for that. */
export function endModelCall(
  measured: Measurements,
  { now, error, tokens }: { now: number; error?: ApiError | string; tokens?: Tokens | undefined },
): ModelCall | undefined {
  const call = measured.modelCalls.at(-1);
  if (!call || call.endedAt !== undefined) return undefined;
  const isFault = typeof error === "object";
  call.endedAt = now;
  call.error = isFault ? error.code : error;
  call.tokens = tokens;
  if (isFault) measured.upstreamError = error.upstream ?? measured.upstreamError;
  return call;
}

/** Notes the beginning of a tool call, or of listing an MCP server's tools, which has no item and is not counted. */
export function beginToolCall(
  { trace, toolCalls, toolCounts }: Measurements,
  { tool: { kind }, name, item }: Pick<PendingCall, "tool" | "name"> & { item?: string },
  now: number,
): ToolCall {
  if (item !== undefined) toolCounts[kind] = (toolCounts[kind] ?? 0) + 1;
  const call: ToolCall = {
    span: trace?.isKept ? newSpanId() : "",
    kind,
    name: name.slice(0, MAX_NAME_LENGTH),
    item,
    begunAt: now,
    endedAt: undefined,
    error: undefined,
  };
  if (toolCalls.length < MAX_TOOL_CALLS) toolCalls.push(call);
  return call;
}

/** Notes the outcome of a call. */
export function endToolCall(call: ToolCall, outcome: Pick<ToolOutcome, "failed" | "error">, now: number): void {
  call.endedAt = now;
  if (!outcome.failed) return;
  const { error } = outcome;
  // The conventions' terms for MCP: never the tool's own text.
  const hasCode = error?.type === "mcp_protocol_error" || error?.type === "http_error";
  call.error = hasCode ? String(error.code) : TOOL_ERROR;
}

/** The error class of a tool that itself reports its failure. */
export const TOOL_ERROR = "tool_error";

/** The difference of `now` and `before`, as far as both are known. */
export function tokensBetween(before: Usage | null | undefined, now: Usage | null | undefined): Tokens | undefined {
  if (!now) return undefined;
  const from = before ? tokensOf(before) : NO_TOKENS;
  const to = tokensOf(now);
  return {
    input: to.input - from.input,
    cached: to.cached - from.cached,
    output: to.output - from.output,
    reasoning: to.reasoning - from.reasoning,
  };
}

export const NO_TOKENS: Readonly<Tokens> = { input: 0, cached: 0, output: 0, reasoning: 0 };

export function tokensOf(usage: Usage): Tokens {
  return {
    input: usage.input_tokens,
    cached: usage.input_tokens_details.cached_tokens,
    output: usage.output_tokens,
    reasoning: usage.output_tokens_details.reasoning_tokens,
  };
}

/** The trace context of a request to the model server: from the model call in progress, if there is one. */
export function modelServerTrace(measured: Measurements): { traceparent: string; tracestate?: string } | undefined {
  const { trace, modelCalls } = measured;
  const call = modelCalls.at(-1);
  const parent = traceparent(trace, call?.endedAt === undefined ? call?.span : undefined);
  if (parent === undefined) return undefined;
  return { traceparent: parent, ...(trace?.state !== undefined && { tracestate: trace.state }) };
}
