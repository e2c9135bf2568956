import { ChatParser, type MessageDelta, type ParsedMessage, parseMessage } from "./chat-parser.ts";
import type { ChatRequest } from "./chat-request.ts";
import { type Ending, generateAll, type Limits, runEngine, type Step } from "./engine.ts";
import type { Speech } from "./generation.ts";

/**
 * A generated token and its addition to the message. The addition is often empty, because text is held back or belongs
 * to a mark of the parsers.
 */
export type ChatStep = {
  name: string;
  id: number;
  delta: MessageDelta;
  /** True if it counts as a reasoning token. */
  thought: boolean;
  ending: Ending | undefined;
};

/** A whole answer. */
export type WholeAnswer = { message: ParsedMessage; steps: Step[]; ending: Ending; reasoningTokens: number };

/** The stream of an answer, token by token. Each token is made on demand. */
export function* chatSteps(speech: Speech, request: ParsedRequest, maxTokens: number): Generator<ChatStep> {
  const parser = new ChatParser({
    thinking: speech.thinking && request.parsers !== false,
    tools: parsesTools(request),
  });
  const count = new ThoughtCounter(speech);
  const engine = runEngine(speech.tokens, limits(speech, request, maxTokens));
  let next = engine.next();
  while (next.done !== true) {
    const { id, name, text } = next.value;
    next = engine.next();
    const ending = next.done === true ? next.value : undefined;
    yield { name, id, delta: parser.add(text, ending !== undefined), thought: count.add(id, name), ending };
  }
}

/** An answer in one piece. */
export function wholeAnswer(speech: Speech, request: ParsedRequest, maxTokens: number): WholeAnswer {
  const { steps, ending } = generateAll(speech.tokens, limits(speech, request, maxTokens));
  const count = new ThoughtCounter(speech);
  const reasoningTokens = steps.filter(({ id, name }) => count.add(id, name)).length;
  const text = steps.map((step) => step.text).join("");
  const message = parseMessage(text, {
    thinking: speech.thinkingByRequest && request.parsers !== false,
    tools: parsesTools(request),
  });
  return { message, steps, ending, reasoningTokens };
}

/** A request, and whether the server parses reasoning and calls out of the answer. */
type ParsedRequest = ChatRequest & { parsers?: boolean };

function parsesTools({ tools, toolChoice, parsers = true }: ParsedRequest): boolean {
  return parsers && tools.length > 0 && toolChoice.kind !== "none";
}

function limits(speech: Speech, request: ChatRequest, maxTokens: number): Limits {
  return {
    maxTokens,
    eos: request.ignoreEos ? undefined : speech.eos,
    stopIds: new Set(request.stopTokenIds),
    stop: request.stop,
    includeStop: request.includeStop,
    repetition: request.repetition,
  };
}

/** vLLM counts by the tokens alone: all tokens before the end of the reasoning, without its marks. */
class ThoughtCounter {
  #thinking: boolean;
  #eos: number;

  constructor({ thinkingByRequest, eos }: Speech) {
    this.#thinking = thinkingByRequest;
    this.#eos = eos;
  }

  add(id: number, name: string): boolean {
    if (!this.#thinking || name === "<think>" || id === this.#eos) return false;
    this.#thinking = name !== "</think>" && name !== "<tool_call>";
    return this.#thinking;
  }
}
