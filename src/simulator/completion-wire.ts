import type { CompletionRequest } from "./completion-request.ts";
import { doneFrame, type Frame, slices } from "./frames.ts";
import type { JsonObject } from "./json.ts";
import { logprob } from "./logprobs.ts";
import type { Settings } from "./settings.ts";
import type { Vocabulary } from "./tokenizer.ts";
import { type PromptUsage, usageBody } from "./usage.ts";

/** What was generated for one prompt. */
export type CompletionChoice = {
  prompt: readonly string[];
  tokens: readonly string[];
  finish: "stop" | "length";
  stopReason: string | number | null;
  /** The stop token that ended it: generated, counted, and not part of the text. */
  stopToken: string | undefined;
};

/** All that the shapes of one answer depend on. */
export type CompletionResult = {
  id: string;
  created: number;
  model: string;
  request: CompletionRequest;
  settings: Settings;
  prompt: PromptUsage;
  choices: CompletionChoice[];
  vocabulary: Vocabulary;
};

/** The chunks of a streamed text completion, `[DONE]` included; one choice after the other. */
export function* completionFrames(result: CompletionResult): Generator<Frame> {
  const { request, settings } = result;
  const head = { id: result.id, object: "text_completion", created: result.created, model: result.model };
  let sent = 0;
  const data = (choices: JsonObject[]) =>
    JSON.stringify({
      ...head,
      choices,
      usage: request.continuousUsage ? usageBody(result.prompt, counted(sent), settings) : null,
    });
  const lastIndex = result.choices.length - 1;
  for (const [index, choice] of result.choices.entries()) {
    let first = true;
    const shape = (tokens: readonly string[], text: string, offset: number, ended: boolean): string => {
      const shaped = {
        index,
        text: first && request.echo ? choice.prompt.join("") + text : text,
        logprobs: logprobsBody(tokens, offset, request.logprobs),
        finish_reason: ended ? choice.finish : null,
        stop_reason: ended ? choice.stopReason : null,
        prompt_token_ids: first ? ids(choice.prompt, result) : null,
        token_ids: ids(tokens, result),
      };
      first = false;
      return data([shaped]);
    };
    let position = 0;
    let offset = 0;
    for (const tokens of slices(choice.tokens, settings.perDelta)) {
      position += tokens.length;
      sent += tokens.length;
      const text = tokens.join("");
      const ended = choice.finish === "length" && position === choice.tokens.length;
      const role = ended && index === lastIndex ? "last delta" : "delta";
      yield { data: shape(tokens, text, offset, ended), tokens: tokens.length, role };
      offset += text.length;
    }
    if (choice.finish === "length" && choice.tokens.length > 0) continue;
    const ending = choice.stopToken === undefined ? [] : [choice.stopToken];
    sent += ending.length;
    const role = index === lastIndex ? "finish" : "delta";
    yield { data: shape(ending, "", offset, true), tokens: ending.length, role };
  }
  if (request.includeUsage && settings.usage) {
    const usage = usageBody(result.prompt, counted(generatedTokens(result)), settings);
    yield { data: JSON.stringify({ ...head, choices: [], usage }), tokens: 0, role: "after" };
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
    choices: result.choices.map((choice, index) => {
      const generated = choice.stopToken === undefined ? choice.tokens : [...choice.tokens, choice.stopToken];
      return {
        index,
        text: (request.echo ? choice.prompt.join("") : "") + choice.tokens.join(""),
        logprobs: logprobsBody(generated, 0, request.logprobs),
        finish_reason: choice.finish,
        stop_reason: choice.stopReason,
        token_ids: ids(generated, result),
        prompt_logprobs: null,
        prompt_token_ids: ids(choice.prompt, result),
      };
    }),
    service_tier: null,
    system_fingerprint: null,
  };
  if (settings.usage) body.usage = usageBody(result.prompt, counted(generatedTokens(result)), settings);
  body.kv_transfer_params = null;
  return body;
}

/** How many tokens all choices together took. */
export function generatedTokens(result: CompletionResult): number {
  return result.choices.reduce(
    (sum, choice) => sum + choice.tokens.length + (choice.stopToken === undefined ? 0 : 1),
    0,
  );
}

function counted(completionTokens: number): { completionTokens: number; reasoningTokens: number } {
  return { completionTokens, reasoningTokens: 0 };
}

function ids(tokens: readonly string[], result: CompletionResult): number[] | null {
  return result.request.returnTokenIds ? tokens.map((token) => result.vocabulary.id(token)) : null;
}

function logprobsBody(tokens: readonly string[], offset: number, top: number | undefined): JsonObject | null {
  if (top === undefined) return null;
  let at = offset;
  const offsets = tokens.map((token) => {
    const own = at;
    at += token.length;
    return own;
  });
  return {
    text_offset: offsets,
    token_logprobs: tokens.map(logprob),
    tokens: [...tokens],
    top_logprobs: tokens.map((token) => ({
      [token]: logprob(token),
      ...Object.fromEntries(
        Array.from({ length: Math.max(0, top - 1) }, (_, rank) => [`${token}${rank + 1}`, logprob(token) - rank - 1]),
      ),
    })),
  };
}
