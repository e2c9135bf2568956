import { LongWork } from "@responses-edge/bounded-io/long-work";
import type { HttpAnswer } from "@responses-edge/outgoing-fetch/socket";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import { ClientTools } from "@responses-edge/responses-api/tool-names";
import { answerFormat } from "@responses-edge/turn/contract/answer-format";
import type {
  Engine,
  ModelDelta,
  Prompt,
  PromptPart,
  PromptSize,
  RawMessage,
  RenderedPrompt,
  Resumption,
} from "@responses-edge/turn/contract/engine";
import type { Plugins } from "@responses-edge/turn/contract/plugin";
import { clientFault, generateWithClientFaults, isBoundByClient } from "../client-faults.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { cannotContinue } from "../dialects/spell.ts";
import { aboveWindow } from "../harmony/output-limit.ts";
import { isWithoutParser, noteMissingParser, type ParserKind } from "../missing-parsers.ts";
import { seesImages } from "../modalities.ts";
import { dialectOf } from "../model-lists.ts";
import { contextWindow } from "../models.ts";
import { refuseBadFormats, strictByDefault } from "../offered-tools.ts";
import { isBelieved, PARSER_FACTS, parserFactsOf } from "../parser-facts.ts";
import type { ChatConfig } from "../settings.ts";
import { stopStringsOf } from "../stop-strings.ts";
import type { Upstream } from "../upstream.ts";
import {
  malformedAnswer,
  parsedAnswer,
  UNREADABLE_ANSWER,
  WITHOUT_TEMPLATES,
  windowNotTold,
} from "../upstream-faults.ts";
import { deliveryOf, streamedAnswer, unusable } from "../vllm-stream.ts";
import { answerRest, callsOrNone } from "./answer-rest.ts";
import { failing, ofWholePrompt } from "./answers.ts";
import { isAfterCalls } from "./begun-answer.ts";
import { ChunkReader } from "./chunks.ts";
import { countIn, countPath } from "./counts.ts";
import { Draft, type DraftOptions } from "./draft.ts";
import { asInput, forcedInput } from "./forced-input.ts";
import type { MarkupSeen } from "./marked-text.ts";
import { hasPictures } from "./messages.ts";
import { partsOf, renderBody, renderedIn } from "./prompt-parts.ts";
import { rawMessage, rawTokens, textOfTokens, withRawMessage } from "./raw-tokens.ts";
import {
  type Asked,
  type Asking,
  isContinued,
  isJoined,
  isOfPlacement,
  knownTools,
  promptTools,
  toChatRequest,
  toCountRequest,
} from "./request.ts";
import { continuesAfter, resumptionAfter } from "./resumption.ts";
import type { TemplateFamily } from "./template-families.ts";
import { familyOf } from "./template-family.ts";
import { mayBindThinking, refusesThinkingBudget, thinkingBudgetOf, unboundThinking } from "./thinking-budget.ts";

/**
 * Any model that vLLM serves with a chat template, over `/v1/chat/completions`. Always streamed, even for JSON answers:
 * a partial answer can be settled, silence is noticed, and no proxy's read timeout cuts a long one off.
 */
export class ChatEngine implements Engine {
  /** Few templates know the role developer, and many allow a system message only at the beginning. */
  readonly noteRole = "user";
  readonly #upstream: Upstream;
  readonly #plugins: Plugins;
  readonly #config: ChatConfig;
  readonly #work: LongWork;

  constructor(
    upstream: Upstream,
    plugins: Plugins,
    config: ChatConfig = { formatWithTools: "never", thinkingBudgets: {} },
    work = new LongWork(""),
  ) {
    this.#work = work;
    this.#upstream = upstream;
    this.#plugins = plugins;
    this.#config = config;
  }

  accept(request: CreateRequest): CreateRequest {
    const { text, structured_outputs: outputs, tools, input } = request;
    // The formats of a hosted tool are those of its server, and are checked when they are listed.
    const hasClientTools = tools != null && ClientTools.of(tools).all.length > 0;
    if (text?.format || outputs || hasClientTools || Array.isArray(input)) refuseBadFormats(request);
    if (request.previous_input_messages == null) return request;
    throw invalidRequest(
      "previous_input_messages",
      "'previous_input_messages' is supported only for gpt-oss models: other models have no such messages.",
      "unsupported_parameter",
    );
  }

  mayCall(prompt: Prompt): boolean {
    return prompt.request.tool_choice !== "none" && promptTools(prompt, "callable").length > 0;
  }

  async generate(prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>> {
    const { text, structured_outputs: outputs, tools } = prompt.request;
    const hasClientTools = tools != null && ClientTools.of(tools).all.length > 0;
    // The refusal of another grammar than the client's names none of its fields.
    const mayRefuse = !prompt.begun && (text?.format != null || outputs != null || hasClientTools);
    if (mayRefuse && isBoundByClient(prompt)) {
      return generateWithClientFaults(prompt, signal, (given) => {
        if (given.freeInputs && !prompt.freeInputs && strictByDefault(prompt).size > 0) {
          parserFactsOf(this.#upstream.server.baseUrl).refusedStrictAt = Date.now();
        }
        return this.#generate(given, signal);
      });
    }
    try {
      const isPlain = !dialectOf(this.#upstream.server)?.cutsPrompts && !prompt.request.enable_response_messages;
      return await (isPlain ? this.#begin(prompt, signal) : this.#generate(prompt, signal));
    } catch (error) {
      throw error instanceof ApiError && !signal.aborted ? clientFault(error, prompt.request) : error;
    }
  }

  async #generate(prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>> {
    const begun = await this.#begin(prompt, signal);
    const answer = dialectOf(this.#upstream.server)?.cutsPrompts ? ofWholePrompt(prompt, begun) : begun;
    return prompt.request.enable_response_messages
      ? withRawMessage(this.#upstream, answer, prompt.model, signal)
      : answer;
  }

  /** The answer to a prompt. If it may have calls, the calls and the final text are checked. */
  async #begin(prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>> {
    if (prompt.asksForText) return this.#answer(prompt, { bindsFormat: false, finalText: true }, signal);
    const dialect = dialectOf(this.#upstream.server) ?? (await this.#upstream.learnDialect(signal));
    if (isContinued(prompt) && !continuesAfter(prompt.items, dialect)) throw cannotContinue(dialect);
    if (dialect.window) await this.#checkLimit(prompt, signal);
    if (prompt.begun && !isAfterCalls(prompt)) {
      const ask = (given: Prompt, asking: Asked) => this.#answer(given, asking, signal);
      return answerRest(prompt, dialect.grammar !== undefined, ask, (given) => this.#begin(given, signal));
    }
    const { text, structured_outputs: outputs } = prompt.request;
    const format = text?.format || outputs ? answerFormat(prompt.request) : undefined;
    if (prompt.begun) {
      const answer = await callsOrNone(this.#answer(prompt, { bindsFormat: false }, signal));
      return this.#judged(prompt, { format, isAfterCalls: true }, dialect, answer);
    }
    if (prompt.isFinal || !this.mayCall(prompt)) {
      const mayCallInVain = !prompt.isFinal && promptTools(prompt).length > 0;
      const isBound = format !== undefined || outputs != null;
      // The tools are still in the prompt; after a call, the answer is asked for again without them.
      if (mayCallInVain && !isBound) {
        return this.#judged(prompt, {}, dialect, await this.#answer(prompt, { bindsFormat: true }, signal));
      }
      const asking = { bindsFormat: true, finalText: true, mayHaveCalls: !isBound };
      const answer = await this.#answer(prompt, asking, signal);
      return format && !dialect.bindsFormat ? this.#judged(prompt, { format, wasTold: true }, dialect, answer) : answer;
    }
    const input = prompt.request.tool_choice == null ? undefined : forcedInput(prompt, dialect);
    if (input) {
      const asking = { bindsFormat: false, grammar: input.rules, isOfCall: true };
      return asInput(input, await this.#answer(prompt, asking, signal));
    }
    const isJoint = format !== undefined && isJoined(prompt, this.#config.formatWithTools, dialect);
    const answer = await this.#answer(prompt, { bindsFormat: !format || isJoint }, signal);
    return this.#judged(prompt, { format: isJoint && dialect.bindsFormat ? undefined : format }, dialect, answer);
  }

  /** Throws the 400 of a limit beyond the window, for a server that does not refuse it itself. */
  async #checkLimit({ model, request }: Prompt, signal: AbortSignal): Promise<void> {
    const { max_output_tokens: wanted } = request;
    const window = wanted == null ? undefined : await contextWindow(model, this.#upstream, signal);
    if (wanted != null && window !== undefined && wanted > window) throw aboveWindow(wanted, window);
  }

  /**
   * An answer that may have calls. Only valid parts of it are shown: no invalid call, and no text without its format.
   * It ends with how to ask the model again.
   */
  async *#judged(
    prompt: Prompt,
    text: Omit<DraftOptions, "bindsStrict">,
    dialect: Dialect,
    answer: AsyncIterable<ModelDelta[]>,
  ): AsyncGenerator<ModelDelta[]> {
    const facts = PARSER_FACTS.get(this.#upstream.server.baseUrl);
    const ignoresStrict = facts !== undefined && isBelieved(facts.ignoredStrictAt);
    // An answer that comes whole is not shown in part.
    const bindsStrict = dialect.bindsFormat && dialect.choice !== "none" && !ignoresStrict && !prompt.isUnwatched;
    const draft = new Draft(prompt, { bindsStrict, ...text });
    try {
      for await (const deltas of answer) {
        const shown = draft.read(deltas);
        if (shown.length > 0) yield shown;
      }
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== UNREADABLE_ANSWER || draft.hasShown) throw error;
      yield draft.endUnread();
      return;
    }
    const last = draft.end();
    if (draft.hasShownInvalid) parserFactsOf(this.#upstream.server.baseUrl).ignoredStrictAt = Date.now();
    yield last;
  }

  async #answer(
    prompt: Prompt,
    asking: Asked,
    signal: AbortSignal,
    laterSystemMessages: Asking["laterSystemMessages"] = "in_place",
  ): Promise<AsyncIterable<ModelDelta[]>> {
    const { model, request } = prompt;
    const effort = request.reasoning?.effort;
    const thinkingBudget = thinkingBudgetOf(prompt, this.#config);
    const bindsThinking = mayBindThinking(this.#upstream.server);
    const facts = PARSER_FACTS.get(this.#upstream.server.baseUrl);
    const parsesCalls = !facts || !isBelieved(facts.refusedAutoAt);
    const bindsByDefault = !facts || !isBelieved(facts.refusedStrictAt);
    const seesImages = await this.#seesPictures(prompt, signal);
    const known = { thinkingBudget, bindsThinking, bindsByDefault, parsesCalls };
    const asked = { ...asking, ...known, laterSystemMessages, seesImages };
    const body = (dialect: Dialect) => {
      const made = (family: TemplateFamily | undefined) =>
        this.#work.run(toChatRequest(prompt, { ...asked, family }, this.#plugins, dialect));
      const family = familyOf(prompt, dialect, this.#upstream.server, signal);
      return family instanceof Promise ? family.then(made) : made(family);
    };
    const options = deliveryOf(prompt, promptTools(prompt).length > 0);
    let response: HttpAnswer;
    try {
      response = await this.#upstream.request("/chat/completions", signal, body, options);
    } catch (error) {
      if (parsesCalls && isWithoutParser(error)) {
        this.#noteMissing("tool_calls", model);
        parserFactsOf(this.#upstream.server.baseUrl).refusedAutoAt = Date.now();
        return this.#answer(prompt, asking, signal, laterSystemMessages);
      }
      if (bindsThinking && refusesThinkingBudget(error, this.#upstream.server)) {
        return this.#answer(prompt, asking, signal, laterSystemMessages);
      }
      const { code, param } = error instanceof ApiError ? error : {};
      if (code === WITHOUT_TEMPLATES) this.#noteMissing("tool_calls", model);
      // Its server has generated an answer, and could not parse it.
      if (code === UNREADABLE_ANSWER && !asking.finalText) return failing(error);
      if (code === "above_max_value" && param === "max_output_tokens") {
        return this.#answer(await this.#fitted(prompt, error, signal), asking, signal, laterSystemMessages);
      }
      if (laterSystemMessages === "at_beginning" || !isOfPlacement(error)) throw error;
      return this.#answer(prompt, asking, signal, "at_beginning");
    }
    const { isOfCall = false, finalText, mayHaveCalls } = asking;
    const continues = isContinued(prompt);
    const hasLogprobs = request.include?.includes("message.output_text.logprobs");
    const reader = new ChunkReader({
      stop: request.stop != null && !isOfCall ? stopStringsOf(prompt) : undefined,
      minTokens: request.min_tokens ?? undefined,
      topLogprobs: request.top_logprobs ?? undefined,
      continues,
      request,
      // Log probabilities are those of the whole text.
      markup:
        isOfCall || (prompt.begun && !isAfterCalls(prompt))
          ? undefined
          : {
              tools: () => (finalText && !mayHaveCalls ? [] : knownTools(prompt)),
              refusesCalls: finalText === true,
              continues,
              leavesText: hasLogprobs === true,
              beginsInThought:
                !continues && !hasLogprobs && effort !== "none" && facts?.beginInThought.has(model) === true,
              onSeen: (seen) => this.#seeMarkup(seen, model),
            },
    });
    const type = response.headers.get("content-type") ?? "";
    if (type.includes("application/json")) return this.#wholeAnswer(response, reader, signal);
    if (type.includes("text/event-stream")) return streamedAnswer(this.#upstream, response, reader, signal);
    await response.body?.cancel();
    throw unusable(this.#upstream.server, malformedAnswer());
  }

  /**
   * The prompt with the limit that the window leaves, for a server that refuses a larger one. Throws `refusal` if the
   * limit is beyond the window, or the room is unknown.
   */
  async #fitted(prompt: Prompt, refusal: unknown, signal: AbortSignal): Promise<Prompt> {
    const { tokens, contextWindow: window, isEstimate } = await this.#measured(prompt, signal);
    const left = window - tokens;
    const wanted = prompt.request.max_output_tokens ?? 0;
    if (isEstimate || wanted > window || left < 1 || left >= wanted) throw refusal;
    return { ...prompt, request: { ...prompt.request, max_output_tokens: left } };
  }

  /** Takes note of an answer that had thoughts or calls in its text. */
  #seeMarkup({ thoughts, calls, endsThought }: MarkupSeen, model: string): void {
    if (thoughts || endsThought) this.#noteMissing("reasoning", model);
    if (calls) this.#noteMissing("tool_calls", model);
    if (endsThought) parserFactsOf(this.#upstream.server.baseUrl).beginInThought.add(model);
  }

  #noteMissing(kind: ParserKind, model: string): void {
    const { server } = this.#upstream;
    const { baseUrl, config } = server;
    noteMissingParser({ baseUrl, name: config.name, dialect: dialectOf(server)?.name }, model, kind);
  }

  resumption(...[prompt, partial, , options]: Parameters<Engine["resumption"]>): Resumption | undefined {
    return resumptionAfter(prompt, partial, (suits) => this.#upstream.require(suits), options?.endsThought);
  }

  unboundThinking(prompt: Prompt): number | undefined {
    return unboundThinking(prompt, this.#config, this.#upstream.server);
  }

  async measure(prompt: Prompt, signal: AbortSignal, options?: { countsAll?: boolean }): Promise<PromptSize> {
    try {
      return await this.#measured(prompt, signal, options);
    } catch (error) {
      throw error instanceof ApiError && !signal.aborted ? clientFault(error, prompt.request) : error;
    }
  }

  async #measured(prompt: Prompt, signal: AbortSignal, { countsAll = false } = {}): Promise<PromptSize> {
    const { counting, isTokenPerDelta } = await this.#upstream.learnDialect(signal);
    const path = counting && countPath(counting);
    const [said, window] = await Promise.all([
      path === undefined
        ? { count: estimateTokens([prompt.items, prompt.request.instructions, promptTools(prompt)]) }
        : this.#upstream.json(path, signal, this.#countRequest(prompt, "in_place", signal)).catch((error: unknown) => {
            if (!isOfPlacement(error)) throw error;
            return this.#upstream.json(path, signal, this.#countRequest(prompt, "at_beginning", signal));
          }),
      counting === "tokenize" ? undefined : contextWindow(prompt.model, this.#upstream, signal),
    ]);
    const tokens = countIn(said);
    if (tokens === undefined) throw malformedAnswer();
    const { max_model_len: most = window } = said as Record<string, unknown>;
    const told = typeof most === "number" ? most : countsAll ? Number.POSITIVE_INFINITY : undefined;
    if (told === undefined) throw windowNotTold();
    const size = { tokens, contextWindow: told };
    if (counting === undefined) return { ...size, isEstimate: true };
    return isTokenPerDelta && isContinued(prompt) ? { ...size, isTokenPerDelta } : size;
  }

  /** Makes the body that has a prompt counted, for the server that gets it. */
  #countRequest(prompt: Prompt, place: Asking["laterSystemMessages"], signal: AbortSignal) {
    const refusedAt = PARSER_FACTS.get(this.#upstream.server.baseUrl)?.refusedStrictAt;
    const asking = { laterSystemMessages: place, bindsByDefault: !isBelieved(refusedAt) };
    return async (dialect: Dialect): Promise<string> => {
      const [seesImages, family] = await Promise.all([
        this.#seesPictures(prompt, signal),
        familyOf(prompt, dialect, this.#upstream.server, signal),
      ]);
      return this.#work.run(toCountRequest(prompt, { ...asking, seesImages, family }, this.#plugins, dialect));
    };
  }

  /** Tells whether a prompt has pictures of files' pages, or images of tools, and its model sees. */
  async #seesPictures({ items, replays, model }: Prompt, signal: AbortSignal): Promise<boolean> {
    const hasImages = items.some(hasPictures) || replays.some(({ exchange }) => exchange?.images !== undefined);
    return hasImages && (await seesImages(model, this.#config, this.#upstream, signal));
  }

  async parts(prompt: Prompt, signal: AbortSignal): Promise<PromptPart[]> {
    const dialect = await this.#upstream.learnDialect(signal);
    return partsOf(await this.#countRequest(prompt, "in_place", signal)(dialect));
  }

  async rendered(prompt: Prompt, signal: AbortSignal, messages?: number): Promise<RenderedPrompt | undefined> {
    const { renders } = await this.#upstream.learnDialect(signal);
    if (renders === undefined) return undefined;
    const body = this.#countRequest(prompt, "in_place", signal);
    const bodyFor = async (dialect: Dialect) => renderBody(await body(dialect), messages);
    return renderedIn(await this.#upstream.json(renders, signal, bodyFor));
  }

  async renderedText(rendered: RenderedPrompt, model: string, signal: AbortSignal): Promise<string> {
    return typeof rendered === "string" ? rendered : textOfTokens(this.#upstream, model, rendered, signal);
  }

  async inputMessages(prompt: Prompt, signal: AbortSignal): Promise<RawMessage[]> {
    const body = this.#countRequest(prompt, "at_beginning", signal);
    const tokenized = await rawTokens(this.#upstream, "//tokenize", signal, body);
    if (typeof tokenized !== "object" || tokenized === null || !("tokens" in tokenized)) throw malformedAnswer();
    if (!Array.isArray(tokenized.tokens)) throw malformedAnswer();
    return [await rawMessage(this.#upstream, prompt.model, tokenized.tokens as number[], signal)];
  }

  /** A whole answer: asked for (KV transfer), or from a proxy before vLLM that ignores `stream: true`. */
  async *#wholeAnswer(response: HttpAnswer, reader: ChunkReader, signal: AbortSignal): AsyncGenerator<ModelDelta[]> {
    const deltas: ModelDelta[] = [];
    reader.read(parsedAnswer(await this.#upstream.text(response, signal)), deltas);
    if (!reader.isFinished) throw malformedAnswer();
    yield deltas;
  }
}
