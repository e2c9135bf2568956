import { newSpanId, type Trace, traceparent } from "@responses-edge/otlp";
import type { Usage } from "@responses-edge/responses-api/response";
import type { Model } from "./engine.ts";
import type { PendingCall, ToolOutcome } from "./tool-session.ts";

/**
 * The measurements that a request takes of itself, for its wide event, its spans and the metrics (docs/telemetry.md): numbers and names,
 * never content. It is one plain object, made once per request where anybody wants to know, and filled once per model call
 * and tool call. Nothing here is done per token.
 *
 * All times are Unix milliseconds.
 */
export interface Measurements {
  /** Where the request stands in its trace; undefined where traces are neither kept nor handed on. */
  readonly trace: Trace | undefined;
  /** Calls of the model server's that make a model speak, in order; no more than `MAX_MODEL_CALLS` are kept. */
  readonly modelCalls: ModelCall[];
  /** Calls of hosted tools, in the order in which they began; no more than `MAX_TOOL_CALLS` are kept. */
  readonly toolCalls: ToolCall[];
  /** How many calls there were of each kind of tool. */
  readonly toolCounts: Record<string, number>;
  /** The facts of the turn that are known since it was put together. */
  turn: MeasuredTurn | undefined;
  /** How often a model call was asked of another server, because one could not answer. */
  failovers: number;
  /** Rows that keeping the turn took. */
  rowsWritten: number;
  /** How the turn ended. */
  end: { status: string; error: string | undefined; tokens: Tokens } | undefined;
}

export interface MeasuredTurn {
  model: Model;
  /** The model is the operator's: configured by name, or loaded by a server as it began, and no adapter. */
  isOperatorsModel: boolean;
  responseId: string;
  conversation: string | undefined;
  isStored: boolean;
  /** The request's own settings that conventions name; none of them is content. */
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
  /** The purpose of a model call: a round's words, a round's words after those that it has said, or a summary. */
  readonly purpose: "round" | "take_up" | "summary";
  readonly begunAt: number;
  /** When the model server has taken the prompt. */
  acceptedAt: number | undefined;
  /** When the first chunk of its stream came. */
  firstChunkAt: number | undefined;
  endedAt: number | undefined;
  /** The model server that was asked. */
  replica: string | undefined;
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

/** One request tells of so many model calls, whatever its model does. */
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
    failovers: 0,
    rowsWritten: 0,
    end: undefined,
  };
}

/** Notes that the model is asked now. The functions below fill the call that this gives. */
export function beginModelCall(
  { trace, modelCalls }: Measurements,
  { round, purpose, now }: { round: number; purpose: ModelCall["purpose"]; now: number },
): ModelCall {
  const call: ModelCall = {
    span: trace?.isKept ? newSpanId() : "",
    round,
    purpose,
    begunAt: now,
    acceptedAt: undefined,
    firstChunkAt: undefined,
    endedAt: undefined,
    replica: undefined,
    tokens: undefined,
    finishReason: undefined,
    error: undefined,
  };
  if (modelCalls.length < MAX_MODEL_CALLS) modelCalls.push(call);
  // The last one is the one under way, whose span the model server is told.
  else modelCalls[MAX_MODEL_CALLS - 1] = call;
  return call;
}

/** Notes that the model call under way, if there is one, has ended. */
export function endModelCall(
  { modelCalls }: Measurements,
  { now, error, tokens }: { now: number; error?: string; tokens?: Tokens | undefined },
): void {
  const call = modelCalls.at(-1);
  if (!call || call.endedAt !== undefined) return;
  call.endedAt = now;
  call.error = error;
  call.tokens = tokens;
}

/** Notes that a tool is called now, or that an MCP server is asked for its tools: that has no item, and is not counted. */
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

/** Notes what became of a call. */
export function endToolCall(call: ToolCall, outcome: Pick<ToolOutcome, "failed" | "error">, now: number): void {
  call.endedAt = now;
  if (!outcome.failed) return;
  const { error } = outcome;
  // In the words of the conventions for MCP: never what the tool has said.
  const hasCode = error?.type === "mcp_protocol_error" || error?.type === "http_error";
  call.error = hasCode ? String(error.code) : TOOL_ERROR;
}

/** The class of the error of a tool that says itself that it has failed. */
export const TOOL_ERROR = "tool_error";

/** `now` less `before`, as far as both are known. */
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

/** The trace context of a request to the model server: from the model call under way, if there is one. */
export function modelServerTrace(measured: Measurements): { traceparent: string; tracestate?: string } | undefined {
  const { trace, modelCalls } = measured;
  const call = modelCalls.at(-1);
  const parent = traceparent(trace, call?.endedAt === undefined ? call?.span : undefined);
  if (parent === undefined) return undefined;
  return { traceparent: parent, ...(trace?.state !== undefined && { tracestate: trace.state }) };
}
