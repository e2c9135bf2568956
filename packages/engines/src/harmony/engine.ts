import { finish, type LongWork, type Steps } from "@responses-edge/bounded-io/long-work";
import {
  CALL,
  CHANNEL,
  cutAtLiterals,
  decodePieces,
  END,
  hasSpecialLiteral,
  MESSAGE,
  renderingConversation,
  type Segment,
  START,
  tokenizing,
  toText,
} from "@responses-edge/harmony";
import type { HttpAnswer } from "@responses-edge/outgoing-fetch/socket";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError } from "@responses-edge/responses-api/errors";
import { takeImages } from "@responses-edge/responses-api/hosted-tools";
import { type Item, partsOf } from "@responses-edge/responses-api/items/registry";
import { mustCall } from "@responses-edge/responses-api/tools";
import type {
  Engine,
  ModelDelta,
  Prompt,
  PromptPart,
  PromptSize,
  RawMessage,
  RenderedPrompt,
  Resumption,
  Sampled,
  SampledCut,
  ToolExchange,
} from "@responses-edge/turn/contract/engine";
import type { Plugins } from "@responses-edge/turn/contract/plugin";
import { clientFault, generateWithClientFaults, refusesGrammar } from "../client-faults.ts";
import { contextWindow } from "../models.ts";
import { refuseBadFormats, toolsOf } from "../offered-tools.ts";
import type { HarmonyConfig } from "../settings.ts";
import type { Upstream } from "../upstream.ts";
import { malformedAnswer } from "../upstream-faults.ts";
import { deliveryOf, streamedAnswer, unusable } from "../vllm-stream.ts";
import { Completion } from "./completion.ts";
import { exchangeMessages, harmonyEffort, notText, toConversation, withHeader } from "./conversation.ts";
import { cutIds, cutText } from "./cut-samples.ts";
import type { FunctionNames } from "./function-names.ts";
import { loadTokenizer } from "./load-tokenizer.ts";
import { wantsLogprobs } from "./logprobs.ts";
import { GPT_OSS_WINDOW, windowFull, withOutputLimit } from "./output-limit.ts";
import { fromRawMessage, parsePreviousMessages, toRawMessage } from "./raw-messages.ts";
import { toCompletionRequest } from "./request.ts";
import { restOfTag } from "./rest-of-tag.ts";
import { countCallable, refusedSchema, refuseEndlessSchemas, structuredOutputs } from "./structural-tag.ts";

/** Error texts of a server that does not know structural tags, rather than one that refuses a schema in them. */
const UNKNOWN_STRUCTURE =
  /structural.?tags? (is|are) not (supported|enabled|implemented)|structured.?outputs? (is|are) not (supported|enabled|implemented)|extra (fields|inputs)|unexpected keyword|(unknown|unrecognized) (field|parameter|argument)/i;

/** How long a server is remembered not to know structural tags, in milliseconds. */
const REMEMBER_MS = 600_000;

/** Most tokens to count of a prompt that exceeds every window. Each takes memory. */
const MAX_COUNTED = 2_000_000;

const withoutStructure = new Map<string, number>();
/** Servers that have taken a structural tag: if they refuse one, the request is at fault. */
const withStructure = new Set<string>();

/** A prompt as it is sent to the server, with the data to read the answer. */
interface Rendered {
  segments: Segment[];
  functions: FunctionNames;
  /** The header of a message that was left open, which the answer continues. */
  opening: Segment[];
}

/**
 * gpt-oss over `/v1/completions`: the prompt is rendered here, and the completion parsed by its token ids, so that no
 * text, of a user or of the model, can become structure. Always streamed, as the chat engine does.
 */
export class HarmonyEngine implements Engine {
  readonly noteRole = "developer";
  readonly #upstream: Upstream;
  readonly #plugins: Plugins;
  readonly #config: HarmonyConfig;
  readonly #work: LongWork;

  constructor(upstream: Upstream, plugins: Plugins, config: HarmonyConfig, work: LongWork) {
    this.#work = work;
    this.#upstream = upstream;
    this.#plugins = plugins;
    this.#config = config;
  }

  accept(request: CreateRequest): CreateRequest {
    harmonyEffort(request.reasoning?.effort);
    refuseBadFormats(request);
    refuseOtherThanText(request);
    if (request.previous_input_messages == null) return request;
    const messages = parsePreviousMessages(request.previous_input_messages).map(toRawMessage);
    return { ...request, previous_input_messages: messages as Record<string, unknown>[] };
  }

  mayCall(prompt: Prompt): boolean {
    return prompt.request.tool_choice !== "none" && countCallable(prompt) > 0;
  }

  async generate(prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>> {
    let isRestFree = false;
    try {
      return await generateWithClientFaults(prompt, signal, (given) => this.#generate(given, signal, isRestFree));
    } catch (error) {
      // The grammar of a rest is none of the client's. Without it, the calls and the format are still checked.
      if (!prompt.sampled || !(error instanceof ApiError) || !refusesGrammar(error)) throw error;
      isRestFree = true;
      return this.#generate(prompt, signal, isRestFree);
    }
  }

  async #generate(given: Prompt, signal: AbortSignal, isRestFree: boolean): Promise<AsyncIterable<ModelDelta[]>> {
    this.#upstream.require(({ hasTokenIds }) => hasTokenIds);
    const prompt = this.#shown(given);
    const rendered = await this.#work.run(this.#render(prompt));
    const completion = new Completion(prompt, rendered.functions, rendered.opening);
    const { sampled } = prompt;
    if (sampled) await completion.goOnAfter(sampled, loadTokenizer);
    if (completion.isFinished) return endOf(completion, await toPromptIds(rendered.segments, sampled, this.#work));
    if (wantsLogprobs(prompt.request)) completion.showLogprobs(await loadTokenizer());
    let response: HttpAnswer;
    try {
      response = await this.#request(prompt, rendered, signal, isRestFree);
    } catch (error) {
      // Earlier samples have filled the window: the answer is complete.
      if (!sampled || !(error instanceof ApiError) || error.code !== "context_length_exceeded") throw error;
      completion.endAtWindow();
      return endOf(completion, await toPromptIds(rendered.segments, sampled, this.#work));
    }
    const type = response.headers.get("content-type") ?? "";
    if (type.includes("application/json")) return this.#wholeAnswer(response, completion, signal);
    if (type.includes("text/event-stream")) return streamedAnswer(this.#upstream, response, completion, signal);
    await response.body?.cancel();
    throw unusable(this.#upstream.server, malformedAnswer());
  }

  /** Always possible: the model continues after its exact tokens, under the rest of its grammar. */
  resumption(prompt: Prompt, _partial: readonly Item[], sampled: Sampled | undefined): Resumption | undefined {
    if (!sampled) return undefined;
    const sampledTokens = "ids" in sampled ? sampled.ids.length : undefined;
    return { prompt: { ...prompt, sampled }, repeated: "", sampledTokens };
  }

  async cutSampled({ request }: Prompt, sampled: Sampled, { kind, kept, mustAnswer }: SampledCut): Promise<Sampled> {
    // A call that is required takes the place of the answer.
    const isFinal = mustAnswer && !mustCall(request.tool_choice);
    const last: Segment[] = isFinal ? [CHANNEL, "final", MESSAGE] : [];
    const end: Segment[] = kind === "thought" ? [END, START, "assistant", ...last] : [];
    if ("text" in sampled) return { text: cutText(sampled.text, kept) + toText(end) };
    const tokenizer = await loadTokenizer();
    const ids = cutIds(sampled.ids, kept, tokenizer);
    return { ids: [...ids, ...finish(tokenizing(end, tokenizer))] };
  }

  unboundThinking({ request: { thinking_token_budget: budget } }: Prompt): number | undefined {
    return budget == null || budget < 0 ? undefined : budget;
  }

  async measure(prompt: Prompt, signal: AbortSignal, { countsAll = false } = {}): Promise<PromptSize> {
    try {
      const window = (await contextWindow(prompt.model, this.#upstream, signal)) ?? GPT_OSS_WINDOW;
      const limit = countsAll ? Math.max(window, MAX_COUNTED) : window;
      const { segments } = await this.#work.run(this.#render(this.#shown(prompt)));
      const ids = await toPromptIds(segments, prompt.sampled, this.#work, limit);
      if (countsAll && ids.length > limit) throw windowFull(window);
      return { tokens: ids.length, contextWindow: window };
    } catch (error) {
      throw error instanceof ApiError && !signal.aborted ? clientFault(error, prompt.request) : error;
    }
  }

  answerMessages(exchange: ToolExchange, made: RawMessage | undefined): RawMessage[] {
    return exchangeMessages(exchange, made && fromRawMessage(made), this.#plugins).map(toRawMessage);
  }

  async parts(prompt: Prompt): Promise<PromptPart[]> {
    const shown = this.#shown(prompt);
    const { messages } = await this.#work.run(toConversation(shown, this.#config, this.#plugins));
    const { effort } = shown.request.reasoning ?? {};
    const { functions, plugins } = toolsOf(shown, "shown");
    const tools = [...functions, ...Object.entries(plugins.namespaces).map(([name, tool]) => ({ ...tool, name }))];
    const format = shown.request.text?.format;
    return [
      { kind: "effort", text: harmonyEffort(effort) },
      ...tools.map((tool) => ({ kind: "tool" as const, name: tool.name, text: JSON.stringify(tool) })),
      ...(format && format.type !== "text" ? [{ kind: "format" as const, text: JSON.stringify(format) }] : []),
      ...messages.map((message) => ({ kind: "input" as const, name: message.role, text: JSON.stringify(message) })),
    ];
  }

  async rendered(prompt: Prompt, _signal: AbortSignal, messages?: number): Promise<number[]> {
    const { messages: all } = await this.#work.run(toConversation(this.#shown(prompt), this.#config, this.#plugins));
    const shown = all.slice(0, messages).map((message) => withHeader(message, this.#config.toolHeader));
    const segments = await this.#work.run(renderingConversation(shown));
    // Without `<|start|>assistant`.
    return await toPromptIds(segments.slice(0, -2), undefined, this.#work, MAX_COUNTED);
  }

  async renderedText(rendered: RenderedPrompt): Promise<string> {
    return typeof rendered === "string" ? rendered : (await loadTokenizer()).decode(rendered);
  }

  inputMessages(prompt: Prompt): RawMessage[] {
    return finish(toConversation(this.#shown(prompt), this.#config, this.#plugins)).messages.map(toRawMessage);
  }

  /** A prompt with its tools: all of them if a grammar of this engine says which may be called. */
  #shown(prompt: Prompt): Prompt {
    const isClients = prompt.request.structured_outputs?.structural_tag !== undefined;
    return isClients || this.#lacksTags ? { ...prompt, onlyOffered: true } : prompt;
  }

  /** Tells whether the server is known not to take structural tags. */
  get #lacksTags(): boolean {
    const since = withoutStructure.get(this.#upstream.server.baseUrl) ?? Number.NEGATIVE_INFINITY;
    return Date.now() - since < REMEMBER_MS;
  }

  *#render(prompt: Prompt): Steps<Rendered> {
    const { messages, functions, open } = yield* toConversation(prompt, this.#config, this.#plugins);
    const segments = yield* renderingConversation(
      messages.map((message) => withHeader(message, this.#config.toolHeader)),
    );
    if (!open) return { segments, functions, opening: [] };
    // Without the beginning of another message, and without the end of the last one.
    const end = segments.findLastIndex((segment) => segment === END || segment === CALL);
    const last = messages.at(-1);
    return { segments: segments.slice(0, end), functions, opening: [CHANNEL, last?.channel ?? "final", MESSAGE] };
  }

  /** Sends the prompt; without its grammar to a server that does not know structural tags. */
  async #request(
    prompt: Prompt,
    { segments, functions, opening }: Rendered,
    signal: AbortSignal,
    isRestFree: boolean,
  ): Promise<HttpAnswer> {
    const { request, sampled, model, spentTokens = 0 } = prompt;
    const window = await contextWindow(model, this.#upstream, signal);
    const limited = {
      server: () => this.#upstream.server.baseUrl,
      model,
      window,
      wanted: request.max_output_tokens == null ? undefined : request.max_output_tokens - spentTokens,
      body: await toPromptText(segments, sampled, window, this.#work),
      count: (limit: number) => toPromptIds(segments, sampled, this.#work, limit),
    };
    const send = (structured: Record<string, unknown> | undefined) =>
      withOutputLimit(limited, (body, maxTokens) => {
        const completion = toCompletionRequest(prompt, body, maxTokens, structured);
        return this.#upstream.request("/completions", signal, completion, deliveryOf(prompt));
      });
    // A grammar begins with the first generated token: after earlier samples it is that of the rest.
    const isFree = isRestFree || opening.length > 0 || prompt.asksForText === true;
    const whole = isFree ? undefined : structuredOutputs(prompt, functions);
    const isClients = prompt.request.structured_outputs?.structural_tag !== undefined;
    const ofRest = async () => (whole && sampled && !isClients ? restOfTag(whole, await textOf(sampled)) : undefined);
    const structured = sampled ? await ofRest() : whole;
    if (!structured || isClients) return send(structured);
    refuseEndlessSchemas(prompt);
    if (this.#lacksTags) return send(undefined);
    try {
      const response = await send(structured);
      // The server may be another one than expected.
      withStructure.add(this.#upstream.server.baseUrl);
      return response;
    } catch (error) {
      const isUnknown = error instanceof ApiError && error.status === 400 && UNKNOWN_STRUCTURE.test(error.message);
      if (!isUnknown || withStructure.has(this.#upstream.server.baseUrl)) throw refusedSchema(error, prompt);
      withoutStructure.set(this.#upstream.server.baseUrl, Date.now());
      return send(undefined);
    }
  }

  /** A whole answer: asked for (KV transfer), or from a proxy before vLLM that ignores `stream: true`. */
  async *#wholeAnswer(response: HttpAnswer, completion: Completion, signal: AbortSignal): AsyncGenerator<ModelDelta[]> {
    const deltas: ModelDelta[] = [];
    const fault = await completion.readAll([await this.#upstream.text(response, signal)], deltas);
    completion.end(deltas);
    if (fault || !completion.isFinished) throw fault ?? malformedAnswer();
    yield deltas;
  }
}

/** The end of a completion whose tokens were all sampled: it broke off before it could be settled. */
async function* endOf(completion: Completion, promptIds: readonly number[]): AsyncGenerator<ModelDelta[]> {
  const deltas: ModelDelta[] = [];
  completion.end(deltas, promptIds.length);
  yield deltas;
}

/**
 * A prompt for the server: as text, or as token ids if text might be mistaken for structure or must be exact. Throws
 * the 400 of a prompt that is tokenised here and exceeds the window.
 */
async function toPromptText(
  segments: Segment[],
  sampled: Sampled | undefined,
  window: number | undefined,
  work: LongWork,
): Promise<string | number[]> {
  if (hasSpecialLiteral(segments) || (sampled && "ids" in sampled)) {
    const limit = window ?? Number.POSITIVE_INFINITY;
    const ids = await toPromptIds(segments, sampled, work, limit);
    if (ids.length > limit) throw windowFull(limit);
    return ids;
  }
  return toText(segments) + (sampled ? sampled.text : "");
}

/** Samples as text, with special tokens as their literals; undefined if that is ambiguous, or ends within a character. */
async function textOf(sampled: Sampled): Promise<string | undefined> {
  const pieces = "text" in sampled ? cutAtLiterals(sampled.text) : decodePieces(sampled.ids, await loadTokenizer());
  const last = pieces.at(-1);
  const isCut = typeof last === "string" && last.endsWith("\uFFFD");
  return isCut || hasSpecialLiteral(pieces) ? undefined : toText(pieces);
}

/** A prompt as token ids; only the beginning if it has more than `limit`. */
async function toPromptIds(
  segments: Segment[],
  sampled: Sampled | undefined,
  work: LongWork,
  limit = Number.POSITIVE_INFINITY,
): Promise<number[]> {
  const tokenizer = await loadTokenizer();
  const ids = await work.run(tokenizing(segments, tokenizer, limit));
  if (!sampled || ids.length > limit) return ids;
  const more = "ids" in sampled ? sampled.ids : await work.run(tokenizing(cutAtLiterals(sampled.text), tokenizer));
  for (const id of more) ids.push(id);
  return ids;
}

/** Throws the 400 of the first part of the input that is not text, nor an image that a tool takes. */
function refuseOtherThanText({ input, tools }: CreateRequest): void {
  if (!Array.isArray(input)) return;
  const mayHaveImages = takeImages(tools);
  for (const [index, item] of input.entries()) {
    const { field, parts } = partsOf(item);
    for (const [part, { type }] of parts.entries()) {
      if (type !== "input_image" && type !== "input_audio" && type !== "input_video") continue;
      if (type === "input_image" && mayHaveImages) continue;
      throw notText(`input[${index}].${field}[${part}]`, type);
    }
  }
}
