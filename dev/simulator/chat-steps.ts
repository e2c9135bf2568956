import { ChatParser, type MessageDelta, type ParsedMessage, parseMessage } from "./chat-parser.ts";
import type { ChatRequest } from "./chat-request.ts";
import { type Ending, generateAll, type Limits, runEngine, type Step } from "./engine.ts";
import type { Speech } from "./generation.ts";

/** A generated token and what it adds to the message: often nothing, where text is held back or is a mark of the parsers. */
export type ChatStep = {
  name: string;
  id: number;
  delta: MessageDelta;
  /** Whether it counts as a reasoning token. */
  thought: boolean;
  ending: Ending | undefined;
};

/** A whole answer. */
export type WholeAnswer = { message: ParsedMessage; steps: Step[]; ending: Ending; reasoningTokens: number };

/** The stream of an answer, token by token, made as it is asked for. */
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

/** A request, and whether the server looks for thoughts and calls in what is said. */
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
  };
}

/** vLLM counts on the tokens alone: all before the end of the thoughts but their marks. */
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
