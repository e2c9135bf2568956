import type { CallDelta, MessageDelta } from "./chat-parser.ts";
import type { ChatRequest } from "./chat-request.ts";
import { type ChatStep, chatSteps, wholeAnswer } from "./chat-steps.ts";
import type { Ending } from "./engine.ts";
import { doneFrame, type Frame, groups } from "./frames.ts";
import type { Speech } from "./generation.ts";
import type { JsonObject } from "./json.ts";
import { logprobEntry } from "./logprobs.ts";
import type { Settings } from "./settings.ts";
import { hex } from "./tokenizer.ts";
import { fingerprint, type PromptUsage, timingsOf, usageBody } from "./usage.ts";

/** The values that all forms of one answer need. */
export type ChatResult = {
  id: string;
  created: number;
  model: string;
  request: ChatRequest & { parsers?: boolean };
  settings: Settings;
  /** `ids`: the ids of the whole prompt, made on demand. */
  prompt: PromptUsage & { ids(): readonly number[] };
  maxTokens: number;
  speech: Speech;
};

/** The chunks of a streamed chat completion, `[DONE]` included. Each is made on demand. */
export function* chatFrames(result: ChatResult): Generator<Frame> {
  const { request, settings, speech, id, created, model } = result;
  const head = `${JSON.stringify({ id, object: "chat.completion.chunk", created, model }).slice(0, -1)},"choices":[`;
  const sent = { completionTokens: 0, reasoningTokens: 0 };
  const usage = () =>
    request.continuousUsage
      ? `,"usage":${JSON.stringify(usageBody(undefined, result.prompt, sent, settings))}`
      : request.timings
        ? `,"timings":${JSON.stringify(timingsOf(result.prompt, sent))}`
        : "";
  const withUsage = request.includeUsage && settings.usage && !settings.usageAtFinish;
  // A request that hides the reasoning gets no token ids either.
  const withIds = request.returnTokenIds && request.includeReasoning;
  const top = request.includeReasoning ? request.logprobs : undefined;

  const promptIds = request.returnTokenIds ? JSON.stringify(result.prompt.ids()) : "null";
  yield {
    data: `${head}{"index":0,"delta":{"role":"${request.role}","content":""},"logprobs":null,"finish_reason":null}]${usage()},"prompt_token_ids":${promptIds},"prompt_text":null}`,
    tokens: 0,
    role: "start",
  };

  // A repeated text gives the same chunk, unless the chunk contains a count. Its frame is then reused.
  const reusable =
    settings.words !== undefined && !withIds && !request.continuousUsage && !request.timings && top === undefined;
  const known = reusable ? new Map<string, Frame>() : undefined;
  const toolCallIds = toolCallId(result);
  let called = false;
  let unsent = 0;
  const hides = !request.includeReasoning;
  for (const steps of groups(chatSteps(speech, request, result.maxTokens), settings.perDelta, request.streamInterval)) {
    const delta = steps.length === 1 ? (steps[0]?.delta ?? {}) : merged(steps);
    const ending = steps.at(-1)?.ending;
    sent.completionTokens += steps.length;
    for (const step of steps) if (step.thought) sent.reasoningTokens++;
    if (hides) delete delta.reasoning;
    const { content } = delta;
    const plain = known !== undefined && ending === undefined && content !== undefined && onlyContent(delta);
    const before = plain ? known?.get(content) : undefined;
    if (before !== undefined) {
      yield before;
      continue;
    }
    called ||= delta.calls !== undefined;
    const empty = isEmpty(delta);
    unsent += steps.length;
    // Without ids and logprobs a token that adds nothing has no chunk of its own.
    if (empty && ending === undefined && top === undefined && !withIds) continue;
    const entries =
      top === undefined ? "null" : JSON.stringify({ content: steps.map(({ name }) => logprobEntry(name, top)) });
    const ids = withIds ? JSON.stringify(steps.map((step) => step.id)) : "null";
    const finish = ending === undefined ? `"finish_reason":null` : finishFields(ending, called, request);
    const print = ending !== undefined && !withUsage ? `,"system_fingerprint":"${fingerprint(settings)}"` : "";
    const counted = ending !== undefined && settings.usageAtFinish;
    const told = counted
      ? `,"usage":${JSON.stringify(usageBody("chat stream", result.prompt, sent, settings))}`
      : usage();
    const frame: Frame = {
      data: `${head}{"index":0,"delta":${deltaJson(delta, { hides, refuses: speech.refuses }, settings, toolCallIds)},"logprobs":${entries},${finish},"token_ids":${ids}}]${print}${told}}`,
      tokens: unsent,
      role: ending === undefined ? "delta" : empty ? "finish" : "last delta",
    };
    unsent = 0;
    if (plain) known?.set(content, frame);
    yield frame;
  }
  if (withUsage) {
    const body = JSON.stringify(usageBody("chat stream", result.prompt, sent, settings));
    yield {
      data: `${head}],"usage":${body},"system_fingerprint":"${fingerprint(settings)}"}`,
      tokens: 0,
      role: "after",
    };
  }
  if (settings.done) yield doneFrame();
}

/** The body of a chat completion that is not streamed, and its number of tokens. */
export function chatBody(result: ChatResult): { body: JsonObject; tokens: number } {
  const { request, settings, speech } = result;
  const { message: parsed, steps, ending, reasoningTokens } = wholeAnswer(speech, request, result.maxTokens);
  const idOf = toolCallId(result);
  const calls = request.parallelToolCalls ? parsed.calls : parsed.calls.slice(0, 1);
  const message: JsonObject = {
    role: request.role,
    // vLLM: "" beside a forced call, null beside one of the model's own.
    content: parsed.content ?? (calls.length > 0 && request.toolChoice.kind !== "auto" ? "" : null),
    refusal: null,
    annotations: null,
    audio: null,
    function_call: null,
  };
  if (speech.refuses) {
    message.refusal = message.content;
    message.content = null;
  }
  if (calls.length > 0) {
    message.tool_calls = calls.map((call, index) => ({ id: idOf(index), type: "function", function: { ...call } }));
  }
  const reasoning = request.includeReasoning ? parsed.reasoning : null;
  if (settings.reasoningField !== "reasoning_content") message.reasoning = reasoning;
  if (settings.reasoningField !== "reasoning") message.reasoning_content = reasoning;
  const choice: JsonObject = {
    index: 0,
    message,
    logprobs:
      request.logprobs === undefined
        ? null
        : { content: steps.map(({ name }) => logprobEntry(name, request.logprobs ?? 0)) },
    finish_reason: finishReason(ending, calls.length > 0, request),
    stop_reason: ending.stopReason,
    token_ids: request.returnTokenIds ? steps.map((step) => step.id) : null,
    routed_experts: null,
  };
  const body: JsonObject = {
    id: result.id,
    object: "chat.completion",
    created: result.created,
    model: result.model,
    choices: [choice],
    service_tier: null,
    system_fingerprint: fingerprint(settings),
  };
  const generated = { completionTokens: steps.length, reasoningTokens };
  if (settings.usage) body.usage = usageBody("chat", result.prompt, generated, settings);
  body.prompt_logprobs = null;
  body.prompt_token_ids = request.returnTokenIds ? [...result.prompt.ids()] : null;
  body.prompt_text = null;
  body.kv_transfer_params = null;
  body.ec_transfer_params = null;
  body.metrics = null;
  return { body, tokens: steps.length };
}

/** One delta of several tokens: everything that they add. */
function merged(steps: readonly ChatStep[]): MessageDelta {
  const all: MessageDelta = {};
  for (const { delta } of steps) {
    if (delta.content !== undefined) all.content = (all.content ?? "") + delta.content;
    if (delta.reasoning !== undefined) all.reasoning = (all.reasoning ?? "") + delta.reasoning;
    for (const call of delta.calls ?? []) {
      all.calls ??= [];
      const last = all.calls.at(-1);
      if (last !== undefined && "arguments" in last && "arguments" in call && last.index === call.index) {
        all.calls[all.calls.length - 1] = { index: last.index, arguments: last.arguments + call.arguments };
      } else all.calls.push(call);
    }
  }
  return all;
}

function onlyContent(delta: MessageDelta): boolean {
  return delta.reasoning === undefined && delta.calls === undefined;
}

function isEmpty(delta: MessageDelta): boolean {
  return delta.content === undefined && onlyContent(delta);
}

function deltaJson(
  { content, reasoning, calls }: MessageDelta,
  { hides, refuses }: { hides: boolean; refuses: boolean },
  settings: Settings,
  toolCallIds: (index: number) => string,
): string {
  const fields: string[] = [];
  // If the request hides the reasoning, every other delta has `reasoning: null`.
  const hidden = hides && (content !== undefined || calls !== undefined);
  if (content !== undefined) fields.push(`"${refuses ? "refusal" : "content"}":${JSON.stringify(content)}`);
  else if (calls !== undefined) fields.push('"content":null');
  if (reasoning !== undefined || hidden) {
    const quoted = JSON.stringify(reasoning ?? null);
    if (settings.reasoningField !== "reasoning_content") fields.push(`"reasoning":${quoted}`);
    if (settings.reasoningField !== "reasoning") fields.push(`"reasoning_content":${quoted}`);
  }
  if (calls !== undefined) {
    fields.push(`"tool_calls":[${calls.map((call) => callJson(call, toolCallIds)).join(",")}]`);
  }
  return `{${fields.join(",")}}`;
}

function callJson(call: CallDelta, toolCallIds: (index: number) => string): string {
  const { index } = call;
  return "name" in call
    ? JSON.stringify({ id: toolCallIds(index), type: "function", index, function: { name: call.name } })
    : JSON.stringify({ index, function: { arguments: call.arguments } });
}

function finishFields(ending: Ending, called: boolean, request: ChatRequest): string {
  const reason = finishReason(ending, called, request);
  return `"finish_reason":"${reason}","stop_reason":${JSON.stringify(ending.stopReason)}`;
}

/** A named tool's call ends with "stop", as in vLLM. */
function finishReason({ finish }: Ending, called: boolean, { toolChoice }: ChatRequest): string {
  return called && finish === "stop" && toolChoice.kind !== "named" ? "tool_calls" : finish;
}

function toolCallId(result: ChatResult): (index: number) => string {
  return (index) => `chatcmpl-tool-${hex(`${result.id}/${index}`, 16)}`;
}
