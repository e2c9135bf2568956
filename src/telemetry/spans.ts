import {
  attributes,
  Double,
  KIND,
  nanos,
  newSpanId,
  type OtlpSpan,
  STATUS_ERROR,
  type Trace,
} from "@responses-edge/otlp";
import type { Measurements, ModelCall, ToolCall } from "@responses-edge/turn/contract/measurements";
import type { WideEvent } from "./wide-event.ts";

/**
 * A request's spans: one of the request itself, and below it one for each call of the model server and of a tool. Names
 * and attributes are those of the GenAI and MCP conventions (docs/telemetry.md names the commit); `responses_edge.*`
 * are those that the conventions lack. Attributes with content are left out.
 */

export interface SpanSource {
  event: WideEvent;
  measured: Measurements;
  trace: Trace;
  /** Unix milliseconds. */
  begunAt: number;
  endedAt: number;
}

/** The conventions' value for a provider that they do not name. */
export const PROVIDER = "vllm";

/** The conventions' name for a model call: the chat engine calls chat completions, Harmony's calls completions. */
export function operationOf(engine: string | undefined): "chat" | "text_completion" {
  return engine === "harmony" ? "text_completion" : "chat";
}

/** The spans, each as OTLP's JSON. */
export function spansOf(source: SpanSource): string[] {
  const { measured, trace } = source;
  return [
    requestSpan(source),
    ...(measured.conversation ? [conversationSpan(measured.conversation, trace)] : []),
    ...measured.modelCalls.map((call) => modelSpan(call, source)),
    ...measured.toolCalls.map((call) => toolSpan(call, source)),
  ].map((span) => JSON.stringify(span));
}

function requestSpan({ event, trace, begunAt, endedAt }: SpanSource): OtlpSpan {
  const isRun = event.transport === "background";
  const isHttp = event.transport === "http" || event.transport === "sse";
  const [method = "", route] = event.endpoint.split(" ");
  const isFault = event.outcome === "failed" || event.status >= 500;
  return {
    ...spanHead(trace, trace.span, trace.parent),
    name: event.endpoint,
    // A run continues without the request that has begun it.
    kind: isRun ? KIND.consumer : KIND.server,
    startTimeUnixNano: nanos(begunAt),
    endTimeUnixNano: nanos(endedAt),
    attributes: attributes({
      ...(isHttp && {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": event.status,
      }),
      "error.type": isFault ? (event.error ?? String(event.status)) : undefined,
      "responses_edge.request.id": event.request_id,
      "responses_edge.tenant": event.tenant,
      "responses_edge.key.id": event.key_id,
      "responses_edge.transport": event.transport,
      "responses_edge.model": event.model,
      "responses_edge.outcome": event.outcome,
      "responses_edge.error": event.error,
      "responses_edge.response.id": event.response_id,
      "responses_edge.rounds": event.rounds,
      "responses_edge.retries": event.retries,
      "responses_edge.take_ups": event.take_ups,
      "responses_edge.stored": event.stored,
      "responses_edge.client_left": event.client_left,
    }),
    status: isFault ? { code: STATUS_ERROR } : {},
  };
}

/** The wait for a conversation, which takes one turn at a time. */
function conversationSpan({ begunAt, endedAt }: NonNullable<Measurements["conversation"]>, trace: Trace): OtlpSpan {
  return {
    ...spanHead(trace, newSpanId(), trace.span),
    name: "enter conversation",
    kind: KIND.internal,
    startTimeUnixNano: nanos(begunAt),
    endTimeUnixNano: nanos(endedAt),
    attributes: [],
    status: {},
  };
}

function modelSpan(call: ModelCall, { event, measured, trace, endedAt }: SpanSource): OtlpSpan {
  const operation = operationOf(event.engine);
  const { settings } = measured.turn ?? {};
  const model = event.upstream_model ?? "";
  const firstChunk = call.firstChunkAt === undefined ? undefined : (call.firstChunkAt - call.begunAt) / 1000;
  return {
    ...spanHead(trace, call.span, trace.span),
    name: `${operation} ${model}`,
    kind: KIND.client,
    startTimeUnixNano: nanos(call.begunAt),
    endTimeUnixNano: nanos(call.endedAt ?? endedAt),
    attributes: attributes({
      "gen_ai.operation.name": operation,
      "gen_ai.provider.name": PROVIDER,
      "gen_ai.request.model": model,
      "gen_ai.request.stream": true,
      "gen_ai.conversation.id": event.conversation_id,
      "gen_ai.request.max_tokens": settings?.maxTokens,
      "gen_ai.request.temperature": doubleOf(settings?.temperature),
      "gen_ai.request.top_p": doubleOf(settings?.topP),
      "gen_ai.response.finish_reasons": call.finishReason === undefined ? undefined : [call.finishReason],
      "gen_ai.response.time_to_first_chunk": doubleOf(firstChunk),
      "gen_ai.usage.input_tokens": call.tokens?.input,
      "gen_ai.usage.output_tokens": call.tokens?.output,
      "gen_ai.usage.cache_read.input_tokens": call.tokens?.cached,
      "gen_ai.usage.reasoning.output_tokens": call.tokens?.reasoning,
      "error.type": call.error,
      "responses_edge.replica": call.replica,
      "responses_edge.round": call.round,
      "responses_edge.purpose": call.purpose,
    }),
    status: call.error === undefined ? {} : { code: STATUS_ERROR },
  };
}

/** One span for a call, even over MCP: the conventions add MCP's attributes to the span of the tool call, and make no second one. */
function toolSpan(call: ToolCall, { trace, endedAt }: SpanSource): OtlpSpan {
  const isList = call.item === undefined;
  const isMcp = call.kind === "mcp";
  return {
    ...spanHead(trace, call.span, trace.span),
    name: isList ? "tools/list" : `execute_tool ${call.name}`,
    // A call to a server that somebody else runs is a client's; other tools run here, or on the operator's own server.
    kind: isMcp ? KIND.client : KIND.internal,
    startTimeUnixNano: nanos(call.begunAt),
    endTimeUnixNano: nanos(call.endedAt ?? endedAt),
    attributes: attributes({
      ...(!isList && {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.type": "extension",
        "gen_ai.tool.call.id": call.item,
      }),
      ...(isMcp && { "mcp.method.name": isList ? "tools/list" : "tools/call", "network.transport": "tcp" }),
      "error.type": call.error,
      "responses_edge.tool.kind": call.kind,
    }),
    status: call.error === undefined ? {} : { code: STATUS_ERROR },
  };
}

function spanHead(trace: Trace, spanId: string, parent: string | undefined) {
  return {
    traceId: trace.traceId,
    spanId,
    ...(parent !== undefined && { parentSpanId: parent }),
    ...(trace.state !== undefined && { traceState: trace.state }),
    // The lowest bit is W3C's `sampled` flag.
    flags: 1,
  };
}

function doubleOf(value: number | undefined): Double | undefined {
  return value === undefined ? undefined : new Double(value);
}
