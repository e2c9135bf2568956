import type { ChatRequest } from "./chat-request.ts";
import { doneFrame, type Frame, slices } from "./frames.ts";
import { countTokens, type Generation, type Said } from "./generation.ts";
import type { JsonObject } from "./json.ts";
import { logprobEntry } from "./logprobs.ts";
import type { Settings } from "./settings.ts";
import { hex, splitTokens, type Vocabulary } from "./tokenizer.ts";
import { type PromptUsage, usageBody } from "./usage.ts";

/** All that the shapes of one answer depend on. */
export type ChatResult = {
  id: string;
  created: number;
  model: string;
  request: ChatRequest;
  settings: Settings;
  prompt: PromptUsage & { tokens: readonly string[] };
  generation: Generation;
  vocabulary: Vocabulary;
};

/** The chunks of a streamed chat completion, `[DONE]` included, made one by one as they are asked for. */
export function* chatFrames(result: ChatResult): Generator<Frame> {
  const { request, settings, generation, vocabulary } = result;
  const { id, created, model } = result;
  const head = `${JSON.stringify({ id, object: "chat.completion.chunk", created, model }).slice(0, -1)},"choices":[`;
  const sent = { completionTokens: 0, reasoningTokens: 0 };
  const finishFields = `"finish_reason":"${generation.finish}","stop_reason":${JSON.stringify(generation.stopReason)}`;
  const usage = () =>
    request.continuousUsage ? `,"usage":${JSON.stringify(usageBody(result.prompt, sent, settings))}` : "";

  const promptIds = request.returnTokenIds ? idList(result.prompt.tokens, vocabulary) : "null";
  yield {
    data: `${head}{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":${promptIds}${usage()}}`,
    tokens: 0,
    role: "start",
  };

  // A repeated text makes the very same chunk unless something in it counts: then its frame is kept.
  const reusable = settings.words !== undefined && !request.returnTokenIds && !request.continuousUsage;
  const known = reusable && request.logprobs === undefined ? new Map<string, Frame>() : undefined;
  const length = generation.finish === "length";
  const deltas = chatDeltas(result);
  let next = deltas.next();
  while (next.done !== true) {
    const { kind, tokens, text } = next.value;
    let delta = next.value;
    next = deltas.next();
    const last = length && next.done === true;
    if (!last && known !== undefined && kind === "content") {
      const before = known.get(text);
      if (before !== undefined) {
        yield before;
        continue;
      }
    }
    sent.completionTokens += tokens.length;
    if (kind === "reasoning") sent.reasoningTokens += tokens.length;
    if (kind === "reasoning" && !request.includeReasoning) {
      // vLLM generates, and counts, what it hides.
      delta = { ...delta, json: undefined };
      if (!last) continue;
    }
    const entries =
      request.logprobs === undefined || delta.json === undefined
        ? "null"
        : JSON.stringify({ content: tokens.map((token) => logprobEntry(token, request.logprobs ?? 0)) });
    const ids = request.returnTokenIds ? idList(tokens, vocabulary) : "null";
    const frame: Frame = {
      data: `${head}{"index":0,"delta":${delta.json ?? "{}"},"logprobs":${entries},${last ? finishFields : '"finish_reason":null'},"token_ids":${ids}}]${usage()}}`,
      tokens: tokens.length,
      role: last ? "last delta" : "delta",
    };
    if (!last && kind === "content") known?.set(text, frame);
    yield frame;
    if (last) return yield* ending(result, head);
  }

  const empty = generation.said.at(-1)?.kind === "content" ? '{"content":""}' : "{}";
  const ids = request.returnTokenIds ? "[]" : "null";
  yield {
    data: `${head}{"index":0,"delta":${empty},"logprobs":null,${finishFields},"token_ids":${ids}}]${usage()}}`,
    tokens: 0,
    role: "finish",
  };
  yield* ending(result, head);
}

/** The body of a chat completion that is not streamed. */
export function chatBody(result: ChatResult): JsonObject {
  const { request, settings, generation, vocabulary } = result;
  const calls = generation.said.filter((entry) => entry.kind === "tool_call");
  const content = textOf(generation, "content");
  const message: JsonObject = {
    role: "assistant",
    // vLLM: "" beside a forced call, null beside one of the model's own.
    content: content ?? (calls.length > 0 && request.toolChoice.kind !== "auto" ? "" : null),
    refusal: textOf(generation, "refusal"),
    annotations: null,
    audio: null,
    function_call: null,
    tool_calls: calls.map((call, index) => ({
      id: toolCallId(result, index),
      type: "function",
      function: { name: call.name, arguments: call.tokens.join("") },
    })),
  };
  const reasoning = request.includeReasoning ? textOf(generation, "reasoning") : null;
  if (settings.reasoningField !== "reasoning_content") message.reasoning = reasoning;
  if (settings.reasoningField !== "reasoning") message.reasoning_content = reasoning;
  const tokens = generation.said.flatMap((entry) => generatedTokens(entry));
  const choice: JsonObject = {
    index: 0,
    message,
    logprobs:
      request.logprobs === undefined
        ? null
        : { content: tokens.map((token) => logprobEntry(token, request.logprobs ?? 0)) },
    finish_reason: generation.finish,
    stop_reason: generation.stopReason,
    token_ids: request.returnTokenIds ? tokens.map((token) => vocabulary.id(token)) : null,
  };
  const body: JsonObject = {
    id: result.id,
    object: "chat.completion",
    created: result.created,
    model: result.model,
    choices: [choice],
    service_tier: null,
    system_fingerprint: null,
  };
  if (settings.usage) body.usage = usageBody(result.prompt, generation, settings);
  body.prompt_logprobs = null;
  body.prompt_token_ids = request.returnTokenIds ? result.prompt.tokens.map((token) => vocabulary.id(token)) : null;
  body.kv_transfer_params = null;
  return body;
}

type Delta = { kind: Said["kind"]; text: string; tokens: readonly string[]; json: string | undefined };

function* chatDeltas(result: ChatResult): Generator<Delta> {
  const { settings, generation } = result;
  let call = 0;
  for (const entry of generation.said) {
    const { kind } = entry;
    if (kind === "tool_call") {
      const opening = { index: call, id: toolCallId(result, call), type: "function", function: { name: entry.name } };
      yield { kind, text: "", tokens: splitTokens(entry.name), json: JSON.stringify({ tool_calls: [opening] }) };
    }
    for (const tokens of slices(entry.tokens, settings.perDelta)) {
      const text = tokens.length === 1 ? (tokens[0] ?? "") : tokens.join("");
      yield { kind, text, tokens, json: deltaJson(kind, text, call, settings) };
    }
    if (kind === "tool_call") call++;
  }
}

function deltaJson(kind: Said["kind"], text: string, call: number, settings: Settings): string {
  const quoted = JSON.stringify(text);
  switch (kind) {
    case "content":
      return `{"content":${quoted}}`;
    case "refusal":
      return `{"refusal":${quoted}}`;
    case "reasoning":
      if (settings.reasoningField === "both") return `{"reasoning":${quoted},"reasoning_content":${quoted}}`;
      return `{"${settings.reasoningField}":${quoted}}`;
    case "tool_call":
      return `{"tool_calls":[{"index":${call},"function":{"arguments":${quoted}}}]}`;
  }
}

function* ending(result: ChatResult, head: string): Generator<Frame> {
  const { request, settings, generation } = result;
  if (request.includeUsage && settings.usage) {
    const usage = JSON.stringify(usageBody(result.prompt, generation, settings));
    yield { data: `${head}],"usage":${usage}}`, tokens: 0, role: "after" };
  }
  if (settings.done) yield doneFrame();
}

function toolCallId(result: ChatResult, index: number): string {
  return `chatcmpl-tool-${hex(`${result.id}/${index}`, 32)}`;
}

function generatedTokens(entry: Said): readonly string[] {
  return entry.kind === "tool_call" && countTokens(entry) > entry.tokens.length
    ? [...splitTokens(entry.name), ...entry.tokens]
    : entry.tokens;
}

function textOf(generation: Generation, kind: "content" | "reasoning" | "refusal"): string | null {
  const entries = generation.said.filter((entry) => entry.kind === kind);
  return entries.length === 0 ? null : entries.map((entry) => entry.tokens.join("")).join("");
}

function idList(tokens: readonly string[], vocabulary: Vocabulary): string {
  return JSON.stringify(tokens.map((token) => vocabulary.id(token)));
}
