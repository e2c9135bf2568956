import type {
  Engine,
  ModelDelta,
  Prompt,
  PromptSize,
  RawMessage,
  Resumption,
  Sampled,
  ToolExchange,
} from "../contract/engine.ts";
import type { Item } from "../items/registry.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { ApiError, invalidRequest } from "../protocol/errors.ts";
import { bindsInputs } from "./bound-inputs.ts";
import { grammarError, grammarFields, mediaParam, refusesGrammar } from "./fault-names.ts";

/**
 * An engine whose faults name what the client sent, and come before its answer begins where vLLM lets them.
 *
 * vLLM makes a grammar after it has accepted a request: a streamed answer is a 200 first, and the refusal is its first
 * event. Where a request has a grammar of the client's, the first word is therefore waited for. Some schemas break vLLM
 * (500) rather than being refused: the prompt is then tried without them, for one token, to know whose fault it was.
 *
 * The grammar of a custom tool is one that this server has translated. A model server that cannot take it (an older one, or
 * with another grammar compiler) is asked without: the model still has it in the tool's description.
 */
export class ClientFaults implements Engine {
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  get noteRole(): Engine["noteRole"] {
    return this.#engine.noteRole;
  }

  async generate(prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>> {
    const hasGrammar = !prompt.asksForText && grammarFields(prompt.request).length > 0;
    const isBound = !prompt.asksForText && bindsInputs(prompt);
    try {
      const answer = await this.#engine.generate(prompt, signal);
      const begun = hasGrammar || isBound ? await begin(answer) : answer;
      return this.#named(begun, prompt.request, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || signal.aborted) throw error;
      if (isBound && (refusesGrammar(error) || error.code === "upstream_error")) {
        return this.generate({ ...prompt, freeInputs: true }, signal);
      }
      if (hasGrammar && error.code === "upstream_error" && (await this.#servesWithoutGrammar(prompt, signal))) {
        throw grammarError("The model server fails on this schema.", prompt.request);
      }
      throw named(error, prompt.request);
    }
  }

  /** Tells whether the model server answers the same prompt where nothing binds it. */
  async #servesWithoutGrammar(prompt: Prompt, signal: AbortSignal): Promise<boolean> {
    const { text: _, structured_outputs: __, tools: ___, tool_choice: ____, ...free } = prompt.request;
    const request: CreateRequest = { ...free, max_output_tokens: 1, enable_response_messages: false };
    try {
      const trial = { ...prompt, request, pluginTools: undefined, spentTokens: 0 };
      for await (const deltas of await this.#engine.generate(trial, signal)) if (deltas.length > 0) return true;
      return true;
    } catch (error) {
      if (signal.aborted) throw error;
      return false;
    }
  }

  async *#named(
    answer: AsyncIterable<ModelDelta[]>,
    request: CreateRequest,
    signal: AbortSignal,
  ): AsyncGenerator<ModelDelta[]> {
    try {
      yield* answer;
    } catch (error) {
      throw error instanceof ApiError && !signal.aborted ? named(error, request) : error;
    }
  }

  accept(request: CreateRequest): CreateRequest {
    return this.#engine.accept(request);
  }

  resumption(prompt: Prompt, partial: readonly Item[], sampled: Sampled | undefined): Resumption | undefined {
    return this.#engine.resumption(prompt, partial, sampled);
  }

  async measure(prompt: Prompt, signal: AbortSignal, options?: { countsAll?: boolean }): Promise<PromptSize> {
    try {
      return await this.#engine.measure(prompt, signal, options);
    } catch (error) {
      throw error instanceof ApiError && !signal.aborted ? named(error, prompt.request) : error;
    }
  }

  answerMessages(exchange: ToolExchange, made: RawMessage | undefined): RawMessage[] {
    return this.#engine.answerMessages(exchange, made);
  }

  inputMessages(prompt: Prompt, signal: AbortSignal): RawMessage[] | Promise<RawMessage[]> {
    return this.#engine.inputMessages(prompt, signal);
  }
}

/** A fault that names the client's field. */
function named(error: ApiError, request: CreateRequest): ApiError {
  if (error.status !== 400 || error.code !== "invalid_request") return error;
  if (refusesGrammar(error) && grammarFields(request).length > 0) return grammarError(error.message, request);
  if (error.param !== null && error.param !== "input") return error;
  const param = mediaParam(error.message, request) ?? error.param;
  return invalidRequest(param, error.message, error.code);
}

/** Waits for the first deltas of an answer, or its fault, which it throws. */
async function begin(answer: AsyncIterable<ModelDelta[]>): Promise<AsyncIterable<ModelDelta[]>> {
  const iterator = answer[Symbol.asyncIterator]();
  const first = await iterator.next();
  return (async function* () {
    try {
      for (let step = first; !step.done; step = await iterator.next()) yield step.value;
    } finally {
      await iterator.return?.();
    }
  })();
}
