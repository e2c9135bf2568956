import type { CreateRequest } from "../../protocol/create-request.ts";
import { ApiError, invalidRequest, toApiError } from "../../protocol/errors.ts";
import type { Item } from "../../protocol/items.ts";
import type { Continuation, Engine, ModelDelta, Prompt, PromptSize, RawMessage } from "../engine.ts";
import { SseDecoder } from "../sse-decoder.ts";
import { connectionLost, malformedAnswer, type Upstream } from "../upstream.ts";
import { readChunk, readCompletion } from "./chunks.ts";
import { toChatRequest, toTokenizeRequest } from "./request.ts";

/** What chat templates say that want every system message at the beginning, or know no such role later. */
const SYSTEM_PLACEMENT =
  /system message must be|only.{0,40}system message|unexpected (message )?role|roles? must alternate/i;

/**
 * Any model that vLLM serves with a chat template, over `/v1/chat/completions`. Always streamed, also for JSON
 * answers: a partial answer can then be settled, silence be noticed, and no proxy's read timeout cuts a long one.
 */
export class ChatEngine implements Engine {
  readonly #upstream: Upstream;

  constructor(upstream: Upstream) {
    this.#upstream = upstream;
  }

  accept(request: CreateRequest): CreateRequest {
    if (request.previous_input_messages == null) return request;
    throw invalidRequest(
      "previous_input_messages",
      "'previous_input_messages' is supported for gpt-oss models only: other models have no messages of that form.",
      "unsupported_parameter",
    );
  }

  async generate(prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>> {
    const answer = await this.#answer(prompt, signal);
    return prompt.request.enable_response_messages ? this.#withRawMessage(answer, prompt.model, signal) : answer;
  }

  async #answer(prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>> {
    const response = await this.#request(prompt, signal);
    const type = response.headers.get("content-type") ?? "";
    if (type.includes("application/json")) return this.#wholeAnswer(response, signal);
    if (type.includes("text/event-stream")) return this.#streamedAnswer(response, signal);
    await response.body?.cancel();
    throw malformedAnswer();
  }

  /**
   * Chat templates can be left open only in the text of the last assistant message (`continue_final_message`): not in
   * its reasoning, and not in a call. Thoughts after that text, and calls that this server would have run, are said
   * anew; a client might act on half a call, so one of its own that it has seen is the end. White space at the end of
   * the text is what templates trim, so it is held back. What a grammar forces cannot be continued: vLLM's grammars
   * begin with the first token that it generates.
   */
  continuation(prompt: Prompt, partial: readonly Item[]): Continuation | undefined {
    const [only] = partial;
    // Nothing but white space: the model begins again.
    if (only && partial.length === 1 && isBlank(only)) return { prompt, repeated: assistantTextOf(only) };
    const said = partial.slice(0, partial.findLastIndex((item) => !canBeSaidAnew(item)) + 1);
    const anew = partial.length - said.length;
    const last = said.at(-1);
    if (!last) return { prompt, repeated: "", anew };
    const { structured_outputs, text: format } = prompt.request;
    if (structured_outputs != null || (format?.format?.type ?? "text") !== "text") return undefined;
    if (last.type !== "message" || last.role !== "assistant") return undefined;
    if (said.some((item) => item.type !== "message" && item.type !== "reasoning")) return undefined;
    if (last.content.some((part) => part.type !== "output_text")) return undefined;
    const text = assistantTextOf(last);
    const kept = text.trimEnd();
    const open: Item = {
      type: "message",
      role: "assistant",
      status: "in_progress",
      content: [{ type: "output_text", text: kept, annotations: [], logprobs: [] }],
    };
    const items = [...prompt.items, ...said.slice(0, -1), open];
    return { prompt: { ...prompt, items }, repeated: text.slice(kept.length), anew };
  }

  async measure(prompt: Prompt, signal: AbortSignal): Promise<PromptSize> {
    const size = await this.#upstream.json("//tokenize", signal, toTokenizeRequest(prompt, "at_beginning"));
    if (typeof size !== "object" || size === null || !("count" in size) || !("max_model_len" in size)) {
      throw malformedAnswer();
    }
    return { tokens: Number(size.count), contextWindow: Number(size.max_model_len) };
  }

  answerMessages(): RawMessage[] {
    return [];
  }

  async inputMessages(prompt: Prompt, signal: AbortSignal): Promise<RawMessage[]> {
    const tokenized = await this.#rawTokens("//tokenize", signal, toTokenizeRequest(prompt, "at_beginning"));
    if (typeof tokenized !== "object" || tokenized === null || !("tokens" in tokenized)) throw malformedAnswer();
    if (!Array.isArray(tokenized.tokens)) throw malformedAnswer();
    return [await this.#rawMessage(prompt.model, tokenized.tokens as number[], signal)];
  }

  /** Ends an answer with all of its tokens as one raw message, as vLLM's own `output_messages` has it. */
  async *#withRawMessage(
    answer: AsyncIterable<ModelDelta[]>,
    model: string,
    signal: AbortSignal,
  ): AsyncGenerator<ModelDelta[]> {
    const ids: number[] = [];
    for await (const deltas of answer) {
      for (const delta of deltas) {
        if (delta.kind === "sampled" && "ids" in delta.sampled) for (const id of delta.sampled.ids) ids.push(id);
      }
      yield deltas.filter((delta) => delta.kind !== "sampled");
    }
    const message = await this.#rawMessage(model, ids, signal).catch((error: unknown): RawMessage => {
      if (signal.aborted) throw error;
      // The answer itself is whole.
      return { type: "raw_message_tokens", message: "", tokens: ids };
    });
    yield [{ kind: "message", index: 0, message }];
  }

  async #rawMessage(model: string, tokens: number[], signal: AbortSignal): Promise<RawMessage> {
    const text = await this.#rawTokens("//detokenize", signal, JSON.stringify({ model, tokens }));
    if (typeof text !== "object" || text === null || !("prompt" in text)) throw malformedAnswer();
    return { type: "raw_message_tokens", message: text.prompt, tokens };
  }

  async #rawTokens(path: string, signal: AbortSignal, body: string): Promise<unknown> {
    try {
      return await this.#upstream.json(path, signal, body);
    } catch (error) {
      // A proxy in front of vLLM that hides these routes must not look like an unknown model.
      if (!(error instanceof ApiError) || error.status >= 500 || error.code === "context_length_exceeded") throw error;
      throw new ApiError({
        status: 502,
        message: "'enable_response_messages' needs the model server's /tokenize and /detokenize routes.",
        code: "upstream_error",
      });
    }
  }

  /** Sends the prompt; once more with all system messages at the beginning when the template insists. */
  async #request(prompt: Prompt, signal: AbortSignal): Promise<Response> {
    try {
      return await this.#upstream.request("/chat/completions", signal, toChatRequest(prompt, "in_place"));
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 400 || !SYSTEM_PLACEMENT.test(error.message)) throw error;
      return this.#upstream.request("/chat/completions", signal, toChatRequest(prompt, "at_beginning"));
    }
  }

  async *#streamedAnswer(response: Response, signal: AbortSignal): AsyncGenerator<ModelDelta[]> {
    const decoder = new SseDecoder();
    let finished = false;
    try {
      for await (const bytes of this.#upstream.reads(response, signal)) {
        const { deltas, fault } = readPayloads(decoder.push(bytes));
        finished ||= deltas.some((delta) => delta.kind === "finish");
        if (deltas.length > 0) yield deltas;
        if (fault) throw fault;
      }
    } catch (error) {
      // The answer is whole; only its usage may be missing.
      if (finished && !signal.aborted) return;
      throw error;
    }
    const { deltas, fault } = readPayloads(decoder.end());
    if (deltas.length > 0) yield deltas;
    if (fault) throw fault;
    // Some versions end without `[DONE]`; without a finish reason the answer is not whole.
    if (!finished && !deltas.some((delta) => delta.kind === "finish")) throw connectionLost();
  }

  /** An answer that came whole: asked for (KV transfer), or from a proxy before vLLM that ignores `stream: true`. */
  async *#wholeAnswer(response: Response, signal: AbortSignal): AsyncGenerator<ModelDelta[]> {
    const text = await this.#upstream.text(response, signal);
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      throw malformedAnswer();
    }
    const deltas: ModelDelta[] = [];
    readCompletion(body, deltas);
    if (!deltas.some((delta) => delta.kind === "finish")) throw malformedAnswer();
    yield deltas;
  }
}

/** Thoughts, white space, and calls that this server has not run yet: nothing is lost when a model thinks again. */
function canBeSaidAnew(item: Item): boolean {
  switch (item.type) {
    case "reasoning":
    case "mcp_call":
    case "web_search_call":
    case "code_interpreter_call":
      return true;
    default:
      return isBlank(item);
  }
}

/** Whether an item is an assistant's message that says nothing but white space. */
function isBlank(item: Item): boolean {
  if (item.type !== "message" || item.role !== "assistant") return false;
  return item.content.every((part) => part.type === "output_text") && assistantTextOf(item).trim() === "";
}

function assistantTextOf(item: Item): string {
  if (item.type !== "message" || item.role !== "assistant") return "";
  return item.content.map((part) => (part.type === "output_text" ? part.text : "")).join("");
}

/** The deltas of some payloads, up to the one at fault: what came before it counts, also when both come in one read. */
function readPayloads(payloads: readonly string[]): { deltas: ModelDelta[]; fault?: ApiError } {
  const deltas: ModelDelta[] = [];
  try {
    for (const payload of payloads) if (payload !== "[DONE]") readChunk(payload, deltas);
  } catch (fault) {
    return { deltas, fault: toApiError(fault) };
  }
  return { deltas };
}
