import type { Config } from "../../config.ts";
import type { Continuation, Engine, ModelDelta, Prompt, PromptSize, RawMessage } from "../../contract/engine.ts";
import type { HostedTools } from "../../contract/hosted-tool.ts";
import { type Item, isServerCall } from "../../items/registry.ts";
import { type ClientTool, ClientTools } from "../../protocol/client-tools.ts";
import type { CreateRequest } from "../../protocol/create-request.ts";
import { ApiError, invalidRequest, toApiError } from "../../protocol/errors.ts";
import { LongWork } from "../../protocol/long-work.ts";
import { boundRules, refuseBadFormats } from "../grammar/bound-inputs.ts";
import { withholdsTools } from "../offered-tools.ts";
import { statusOf } from "../server-status.ts";
import { SseDecoder } from "../sse-decoder.ts";
import { stopStringsOf } from "../stop-strings.ts";
import type { Upstream } from "../upstream.ts";
import { connectionLost, malformedAnswer } from "../upstream-faults.ts";
import { askingFor } from "../vllm-words.ts";
import { ChunkReader } from "./chunks.ts";
import { Draft, type DraftOptions } from "./draft.ts";
import { finalFormat } from "./final-format.ts";
import { type ForcedInput, forcedInput, InputCall } from "./forced-input.ts";
import type { ChatMessage } from "./messages.ts";
import {
  type Asking,
  callableTools,
  chatStreamInterval,
  isContinued,
  isJoined,
  mayCall,
  promptTools,
  toChatRequest,
  toTokenizeRequest,
} from "./request.ts";

/** How often in one round a model is asked again that has called what cannot be called. */
const MAX_ASKED_AGAIN = 3;

/** How long a server is remembered to look for no calls, in milliseconds. */
const REMEMBER_MS = 600_000;

/** What chat templates say that want every system message at the beginning, or know no such role later. */
const SYSTEM_PLACEMENT =
  /system message must be|only.{0,40}system message|unexpected (message )?role|roles? must alternate/i;

/** What vLLM says of `tool_choice: "auto"` where it was started without a parser of calls. */
const NO_PARSER = /enable-auto-tool-choice|tool-call-parser/i;

export type ChatConfig = Pick<Config, "formatWithTools" | "thinkingBudgets">;

/**
 * Any model that vLLM serves with a chat template, over `/v1/chat/completions`. Always streamed, also for JSON
 * answers: a partial answer can then be settled, silence be noticed, and no proxy's read timeout cuts a long one.
 */
export class ChatEngine implements Engine {
  /** Few templates know a developer, and many no system message later than at the beginning. */
  readonly noteRole = "user";
  readonly #upstream: Upstream;
  readonly #hostedTools: HostedTools;
  readonly #config: ChatConfig;
  readonly #work: LongWork;

  constructor(
    upstream: Upstream,
    hostedTools: HostedTools,
    config: ChatConfig = { formatWithTools: "never", thinkingBudgets: {} },
    work = new LongWork(""),
  ) {
    this.#work = work;
    this.#upstream = upstream;
    this.#hostedTools = hostedTools;
    this.#config = config;
  }

  accept(request: CreateRequest): CreateRequest {
    refuseBadFormats(request);
    if (request.previous_input_messages == null) return request;
    throw invalidRequest(
      "previous_input_messages",
      "'previous_input_messages' is supported for gpt-oss models only: other models have no messages of that form.",
      "unsupported_parameter",
    );
  }

  async generate(prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>> {
    const answer = await this.#begin(prompt, signal);
    return prompt.request.enable_response_messages ? this.#withRawMessage(answer, prompt.model, signal) : answer;
  }

  /** The answer to a prompt; where it may have calls, one in which they and the final text are right. */
  async #begin(given: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>> {
    const prompt = this.#shown(given);
    if (prompt.asksForText) return this.#answer(prompt, { bindsFormat: false, finalText: true }, signal);
    if (!mayCall(prompt)) return this.#withoutCalls(prompt, signal);
    const input = forcedInput(prompt);
    if (input) {
      const asking = { bindsFormat: false, inputGrammar: input.grammar };
      return this.#forced(prompt, input, await this.#answer(prompt, asking, signal), signal);
    }
    const bindsFormat = this.#bindsFormat(prompt);
    return this.#judged(prompt, { bindsFormat, answer: await this.#answer(prompt, { bindsFormat }, signal) }, signal);
  }

  /**
   * An answer in which nothing may be called. The tools stand in the prompt all the same: where a grammar binds the whole
   * answer, it has no call; else one that has is asked for again without them.
   */
  async #withoutCalls(prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>> {
    const asking = { bindsFormat: true, finalText: true };
    const isBound = finalFormat(prompt.request) !== undefined || prompt.request.structured_outputs != null;
    if (isBound || promptTools(prompt).length === 0) return this.#answer(prompt, asking, signal);
    try {
      const answer = await this.#answer(prompt, { bindsFormat: true }, signal);
      return this.#judged(prompt, { bindsFormat: true, answer }, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 400 || !NO_PARSER.test(error.message)) throw error;
      statusOf(this.#upstream.baseUrl).refusedAutoAt = Date.now();
      return this.#answer({ ...prompt, onlyOffered: true }, asking, signal);
    }
  }

  /** A prompt with the tools that stand in it: a model server that looks for no calls gets those that may be called. */
  #shown(prompt: Prompt): Prompt {
    const { refusedAutoAt } = statusOf(this.#upstream.baseUrl);
    if (refusedAutoAt === undefined || Date.now() - refusedAutoAt >= REMEMBER_MS) return prompt;
    return { ...prompt, onlyOffered: true };
  }

  #bindsFormat(prompt: Prompt): boolean {
    return !finalFormat(prompt.request) || isJoined(prompt, this.#config.formatWithTools);
  }

  /** An answer that is the input of a call. Where it does not keep to the grammar, the call is asked for as any other is. */
  async *#forced(
    prompt: Prompt,
    input: ForcedInput,
    answer: AsyncIterable<ModelDelta[]>,
    signal: AbortSignal,
  ): AsyncGenerator<ModelDelta[]> {
    const call = new InputCall(input);
    for await (const deltas of answer) {
      const shown = call.read(deltas);
      if (shown.length > 0) yield shown;
    }
    if (!call.isBroken) return;
    yield [{ kind: "item_done" }];
    const free = { ...prompt, freeInputs: true, spentTokens: (prompt.spentTokens ?? 0) + call.tokens };
    if (isSpent(free)) {
      yield [{ kind: "finish", reason: "length" }];
      return;
    }
    const bindsFormat = this.#bindsFormat(free);
    const again = await this.#answer(free, { bindsFormat }, signal);
    yield* this.#judged(free, { bindsFormat, answer: again, nextIndex: 1 }, signal);
  }

  /**
   * An answer that may have calls. One that is wrong is asked for again, with what was right of it shown: calls that
   * cannot be made never are, and text without its format is not, either. The model then sees only what it may call.
   */
  async *#judged(
    prompt: Prompt,
    first: { bindsFormat: boolean; answer: AsyncIterable<ModelDelta[]>; nextIndex?: number },
    signal: AbortSignal,
  ): AsyncGenerator<ModelDelta[]> {
    const { bindsFormat } = first;
    const options = {
      offered: new Set(callableTools(prompt).map(({ name }) => name)),
      ...clientsOf(prompt),
      format: bindsFormat ? undefined : finalFormat(prompt.request),
    };
    const corrections: ChatMessage[] = [];
    let spentTokens = prompt.spentTokens ?? 0;
    let { answer, nextIndex = 0 } = first;
    for (let asked = 0; ; asked += 1) {
      const withholds = asked === 0 && withholdsTools(prompt);
      const draft = new Draft({ ...options, withholds }, nextIndex);
      for await (const deltas of answer) {
        const shown = draft.read(deltas);
        if (shown.length > 0) yield shown;
      }
      const last: ModelDelta[] = [];
      const verdict = draft.end(last, asked >= MAX_ASKED_AGAIN);
      if (last.length > 0) yield last;
      if (verdict.next === "accept") return;
      spentTokens += draft.tokens;
      nextIndex = draft.nextIndex;
      if (isSpent({ ...prompt, spentTokens })) {
        yield [{ kind: "finish", reason: "length" }];
        return;
      }
      if (verdict.next === "again") corrections.push(...verdict.messages);
      const isFormat = verdict.next === "format";
      const finalText = isFormat || !mayCall(prompt);
      const asking = { bindsFormat: bindsFormat || isFormat, corrections, finalText };
      const again = { ...prompt, spentTokens, ...(!isFormat && { onlyOffered: true }) };
      answer = await this.#answer(again, asking, signal);
      if (!finalText) continue;
      yield* answer;
      return;
    }
  }

  async #answer(prompt: Prompt, asking: Asked, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>> {
    const response = await this.#request(prompt, asking, signal);
    const reader = new ChunkReader({
      // The input of a call is none of the answer.
      stop: asking.inputGrammar === undefined ? stopStringsOf(prompt) : undefined,
      minTokens: prompt.request.min_tokens ?? undefined,
      continues: isContinued(prompt) && !asking.corrections?.length,
    });
    const type = response.headers.get("content-type") ?? "";
    if (type.includes("application/json")) return this.#wholeAnswer(response, reader, signal);
    if (type.includes("text/event-stream")) return this.#streamedAnswer(response, reader, signal);
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
    const kept = partial.findLastIndex((item) => !canBeSaidAnew(item)) + 1;
    const anew = partial.length - kept;
    const said = partial.slice(0, kept).filter((item) => !isCutCall(item));
    const last = said.at(-1);
    if (!last) return { prompt, repeated: "", anew };
    const { structured_outputs, text: format } = prompt.request;
    if (structured_outputs != null || (format?.format?.type ?? "text") !== "text") return undefined;
    if (last.type !== "message" || last.role !== "assistant") return undefined;
    if (said.some((item) => item.type !== "message" && item.type !== "reasoning")) return undefined;
    if (last.content.some((part) => part.type !== "output_text")) return undefined;
    const text = assistantTextOf(last);
    const trimmed = text.trimEnd();
    const open: Item = {
      type: "message",
      role: "assistant",
      status: "in_progress",
      content: [{ type: "output_text", text: trimmed, annotations: [], logprobs: [] }],
    };
    const items = [...prompt.items, ...said.slice(0, -1), open];
    return { prompt: { ...prompt, items }, repeated: text.slice(trimmed.length), anew };
  }

  async measure(prompt: Prompt, signal: AbortSignal): Promise<PromptSize> {
    const shown = this.#shown(prompt);
    const size = await placingSystemMessages(async (laterSystemMessages) => {
      const body = await this.#work.run(toTokenizeRequest(shown, laterSystemMessages, this.#hostedTools));
      return this.#upstream.json("//tokenize", signal, body);
    });
    if (typeof size !== "object" || size === null || !("count" in size) || !("max_model_len" in size)) {
      throw malformedAnswer();
    }
    return { tokens: Number(size.count), contextWindow: Number(size.max_model_len) };
  }

  answerMessages(): RawMessage[] {
    return [];
  }

  async inputMessages(prompt: Prompt, signal: AbortSignal): Promise<RawMessage[]> {
    const tokenized = await this.#rawTokens(
      "//tokenize",
      signal,
      await this.#work.run(toTokenizeRequest(this.#shown(prompt), "at_beginning", this.#hostedTools)),
    );
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
      // Such as a proxy in front of vLLM that hides these routes.
      if (!(error instanceof ApiError) || error.code !== "upstream_error") throw error;
      throw new ApiError({
        status: 502,
        message: "'enable_response_messages' needs the model server's /tokenize and /detokenize routes.",
        code: "upstream_error",
      });
    }
  }

  async #request(prompt: Prompt, asking: Asked, signal: AbortSignal): Promise<Response> {
    const thinkingBudget = this.#thinkingBudget(prompt);
    const send = async (laterSystemMessages: Asking["laterSystemMessages"]) => {
      const asked = { ...asking, laterSystemMessages, thinkingBudget };
      const body = await this.#work.run(toChatRequest(prompt, asked, this.#hostedTools));
      return this.#upstream.request("/chat/completions", signal, body, askingFor(prompt, chatStreamInterval(prompt)));
    };
    return placingSystemMessages(send);
  }

  /** Tokens that the model may think with the request's effort (`THINKING_BUDGETS`). */
  #thinkingBudget({ model, request }: Prompt): number | undefined {
    const { thinkingBudgets } = this.#config;
    const effort = request.reasoning?.effort;
    return effort != null && Object.hasOwn(thinkingBudgets, model) ? thinkingBudgets[model]?.[effort] : undefined;
  }

  async *#streamedAnswer(response: Response, reader: ChunkReader, signal: AbortSignal): AsyncGenerator<ModelDelta[]> {
    const decoder = new SseDecoder();
    let finished = false;
    try {
      for await (const bytes of this.#upstream.reads(response, signal)) {
        const { deltas, fault } = readPayloads(reader, decoder.push(bytes));
        finished ||= deltas.some((delta) => delta.kind === "finish");
        if (deltas.length > 0) yield deltas;
        if (fault) throw fault;
        // Leaving closes the upstream request.
        if (reader.isOver) return;
      }
    } catch (error) {
      // The answer is whole; only its usage may be missing.
      if (finished && !signal.aborted) return;
      throw error;
    }
    const { deltas, fault } = readPayloads(reader, decoder.end());
    if (deltas.length > 0) yield deltas;
    if (fault) throw fault;
    // Some versions end without `[DONE]`; without a finish reason the answer is not whole.
    if (!finished && !deltas.some((delta) => delta.kind === "finish")) throw connectionLost();
  }

  /** An answer that came whole: asked for (KV transfer), or from a proxy before vLLM that ignores `stream: true`. */
  async *#wholeAnswer(response: Response, reader: ChunkReader, signal: AbortSignal): AsyncGenerator<ModelDelta[]> {
    const text = await this.#upstream.text(response, signal);
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      throw malformedAnswer();
    }
    const deltas: ModelDelta[] = [];
    reader.readCompletion(body, deltas);
    if (!deltas.some((delta) => delta.kind === "finish")) throw malformedAnswer();
    yield deltas;
  }
}

/** Sends a prompt; once more with all system messages at the beginning when the template insists. */
async function placingSystemMessages<T>(send: (where: Asking["laterSystemMessages"]) => Promise<T>): Promise<T> {
  try {
    return await send("in_place");
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 400 || !SYSTEM_PLACEMENT.test(error.message)) throw error;
    return send("at_beginning");
  }
}

/** Thoughts, white space, and calls that this server has not run yet: nothing is lost when a model thinks again. */
function canBeSaidAnew(item: Item): boolean {
  return item.type === "reasoning" || isServerCall(item) || isCutCall(item) || isBlank(item);
}

/** Whether an item is a call that was cut and so not made: the model was told, or is to be asked again. */
function isCutCall(item: Item): boolean {
  return (item.type === "function_call" || item.type === "custom_tool_call") && item.status === "incomplete";
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

/** How a prompt is asked, but for what is tried out. */
type Asked = Omit<Asking, "laterSystemMessages" | "thinkingBudget">;

/** Whether nothing is left of `max_output_tokens`. */
function isSpent({ request: { max_output_tokens: limit }, spentTokens = 0 }: Prompt): boolean {
  return limit != null && spentTokens >= limit;
}

/**
 * The tools that the client answers, and those of them whose calls are shown as they are written: the strict ones, which
 * vLLM binds, and custom ones without a grammar, whose inputs are long and may be anything.
 */
function clientsOf(prompt: Prompt): Pick<DraftOptions, "clients" | "live" | "rules"> {
  const { request } = prompt;
  const offered = ClientTools.of(request.tools).offered(request.tool_choice);
  const rules = boundRules(request);
  const strict = new Set(callableTools(prompt).flatMap((tool) => (tool.strict === true ? [tool.name] : [])));
  const isFree = ({ flatName, tool }: ClientTool) => tool.type === "custom" && !rules.has(flatName);
  const live = offered.filter((tool) => isFree(tool) || strict.has(tool.flatName));
  return {
    clients: new Map(offered.map((tool) => [tool.flatName, tool])),
    live: new Set(live.map(({ flatName }) => flatName)),
    rules,
  };
}

/** The deltas of some payloads, up to the one at fault: what came before it counts, also when both come in one read. */
function readPayloads(reader: ChunkReader, payloads: readonly string[]): { deltas: ModelDelta[]; fault?: ApiError } {
  const deltas: ModelDelta[] = [];
  try {
    for (const payload of payloads) if (payload !== "[DONE]") reader.read(payload, deltas);
  } catch (fault) {
    return { deltas, fault: toApiError(fault) };
  }
  return { deltas };
}
