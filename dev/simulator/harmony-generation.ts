import type { CompletionRequest } from "./completion-request.ts";
import { type Ending, generateAll, type Token } from "./engine.ts";
import { deterministicWords } from "./generation.ts";
import { CALL, Detokenizer, ENDOFTEXT, type HarmonyTokenizer, isSpecial, RETURN } from "./harmony-tokenizer.ts";
import type { Settings } from "./settings.ts";

/** The output: token ids, the text that each adds, its text in `logprobs`, and the reason for the end. */
export type HarmonyGeneration = Ending & { ids: number[]; texts: string[]; names: string[] };

/** The tokens that end a gpt-oss's output besides `<|return|>`, from its `generation_config.json`. */
const OTHER_ENDS = [ENDOFTEXT, CALL];

/** Generates the tokens `wanted` until a stop token, a stop string or the token limit, as the engine does. */
export function generateHarmony(
  wanted: readonly number[],
  request: CompletionRequest,
  maxTokens: number,
  settings: Settings,
  tokenizer: HarmonyTokenizer,
): HarmonyGeneration {
  const all = request.ignoreEos ? goOn(wanted, maxTokens, tokenizer) : wanted;
  const { steps, ending } = generateAll(tokensOf(all, request, settings, tokenizer), {
    maxTokens,
    eos: request.ignoreEos ? undefined : RETURN,
    stopIds: new Set<number>([...(request.ignoreEos ? [] : OTHER_ENDS), ...request.stopTokenIds]),
    stop: request.stop,
    includeStop: request.includeStop,
    repetition: request.repetition,
  });
  return {
    ...ending,
    ids: steps.map((step) => step.id),
    texts: steps.map((step) => step.text),
    names: steps.map((step) => step.name),
  };
}

function* tokensOf(
  ids: readonly number[],
  request: CompletionRequest,
  settings: Settings,
  tokenizer: HarmonyTokenizer,
): Generator<Token> {
  const detokenizer = new Detokenizer(tokenizer, request.skipSpecialTokens);
  for (const [at, id] of ids.entries()) {
    const text = detokenizer.add(id);
    // The token that completes a character has the whole character as its text. The tokens before it have none.
    const name = text !== "" ? text : isSpecial(id) ? tokenizer.token(id) : "";
    yield { id, text, name, inert: !settings.stops && at < ids.length - 1 };
  }
}

function goOn(wanted: readonly number[], maxTokens: number, tokenizer: HarmonyTokenizer): number[] {
  const missing = Math.max(0, maxTokens - wanted.length);
  return [...wanted, ...tokenizer.encodeSegments([` ${deterministicWords(missing).join("")}`])];
}
