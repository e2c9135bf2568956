import type { CompletionRequest } from "./completion-request.ts";
import type { Finish } from "./engine.ts";
import { doneFrame, type Frame, groups } from "./frames.ts";
import type { JsonObject } from "./json.ts";
import { alternatives, logprob } from "./logprobs.ts";
import type { Settings } from "./settings.ts";
import { fingerprint, type PromptUsage, usageBody } from "./usage.ts";

/** The output for one prompt. Token ids are present if the request asks for them. */
export type CompletionChoice = {
  /** `cacheKey`: the keys that the prefix cache compares, one entry per token. */
  prompt: { text: string; cacheKey: readonly (string | number)[]; ids: readonly number[] | undefined };
  /** The text that each token adds. A stop token adds none. */
  texts: readonly string[];
  /** The text of each token in `logprobs`. */
  names: readonly string[];
  ids: readonly number[] | undefined;
  finish: Finish;
  stopReason: string | number | null;
  /** The time of each token, for a scripted model. */
  delayMs?: number;
};

/** The values that all forms of one answer need. */
export type CompletionResult = {
  id: string;
  created: number;
  model: string;
  request: CompletionRequest;
  settings: Settings;
  prompt: PromptUsage;
  choices: CompletionChoice[];
};

/** The chunks of a streamed text completion, `[DONE]` included, one choice after the other. */
export function* completionFrames(result: CompletionResult): Generator<Frame> {
  const { request, settings } = result;
  const head = { id: result.id, object: "text_completion", created: result.created, model: result.model };
  let sent = 0;
  const withUsage = request.includeUsage && settings.usage;
  const data = (choice: JsonObject) => {
    const chunk: JsonObject = { ...head, choices: [choice] };
    if (choice.finish_reason !== null && !withUsage) chunk.system_fingerprint = fingerprint(settings);
    if (request.continuousUsage) chunk.usage = usageBody("completion chunk", result.prompt, counted(sent), settings);
    return JSON.stringify(chunk);
  };
  const lastIndex = result.choices.length - 1;
  for (const [index, choice] of result.choices.entries()) {
    let position = 0;
    let offset = 0;
    const shape = (texts: readonly string[], ended: boolean): string => {
      const first = position === 0;
      const next = position + texts.length;
      const text = texts.join("");
      const shaped = {
        index,
        text: first && request.echo ? choice.prompt.text + text : text,
        logprobs: logprobsBody(choice.names.slice(position, next), offset, request.logprobs),
        finish_reason: ended ? choice.finish : null,
        stop_reason: ended ? choice.stopReason : null,
        prompt_token_ids: first && choice.prompt.ids !== undefined ? [...choice.prompt.ids] : null,
        token_ids: choice.ids?.slice(position, next) ?? null,
      };
      position = next;
      if (request.logprobs !== undefined) offset += characters(text);
      sent += texts.length;
      return data(shaped);
    };
    for (const texts of groups(choice.texts, settings.perDelta, request.streamInterval)) {
      const ended = position + texts.length === choice.texts.length;
      const role = ended && index === lastIndex ? "last delta" : "delta";
      yield { data: shape(texts, ended), tokens: texts.length, role };
    }
  }
  if (withUsage) {
    const usage = usageBody("completion stream", result.prompt, counted(generatedTokens(result)), settings);
    const last = { ...head, choices: [], usage, system_fingerprint: fingerprint(settings) };
    yield { data: JSON.stringify(last), tokens: 0, role: "after" };
  }
  if (settings.done) yield doneFrame();
}

/** The body of a text completion that is not streamed. */
export function completionBody(result: CompletionResult): JsonObject {
  const { request, settings } = result;
  const body: JsonObject = {
    id: result.id,
    object: "text_completion",
    created: result.created,
    model: result.model,
    choices: result.choices.map((choice, index) => ({
      index,
      text: (request.echo ? choice.prompt.text : "") + choice.texts.join(""),
      logprobs: logprobsBody(choice.names, 0, request.logprobs),
      finish_reason: choice.finish,
      stop_reason: choice.stopReason,
      token_ids: choice.ids === undefined ? null : [...choice.ids],
      prompt_logprobs: null,
      prompt_token_ids: choice.prompt.ids === undefined ? null : [...choice.prompt.ids],
      routed_experts: null,
    })),
    service_tier: null,
    system_fingerprint: fingerprint(settings),
  };
  if (settings.usage) body.usage = usageBody("completion", result.prompt, counted(generatedTokens(result)), settings);
  body.kv_transfer_params = null;
  body.ec_transfer_params = null;
  body.metrics = null;
  return body;
}

/** The total number of tokens of all choices. */
export function generatedTokens(result: CompletionResult): number {
  return result.choices.reduce((sum, choice) => sum + choice.texts.length, 0);
}

function counted(completionTokens: number): { completionTokens: number; reasoningTokens: number } {
  return { completionTokens, reasoningTokens: 0 };
}

/** Python counts code points. */
function characters(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

function logprobsBody(tokens: readonly string[], offset: number, top: number | undefined): JsonObject | null {
  if (top === undefined) return null;
  let at = offset;
  const offsets = tokens.map((token) => {
    const own = at;
    at += characters(token);
    return own;
  });
  return {
    text_offset: offsets,
    token_logprobs: tokens.map(logprob),
    tokens: [...tokens],
    top_logprobs: tokens.map((token) => Object.fromEntries(alternatives(token, Math.max(1, top)))),
  };
}
