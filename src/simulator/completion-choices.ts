import { answerCompletion } from "./completion-answer.ts";
import { type CompletionRequest, tokenLimit } from "./completion-request.ts";
import type { CompletionChoice } from "./completion-wire.ts";
import { badRequest } from "./errors.ts";
import { generate } from "./generation.ts";
import type { Settings } from "./settings.ts";
import { splitTokens, type Vocabulary } from "./tokenizer.ts";

/** What a model of the simulator's own vocabulary generates for each prompt. */
export function completionChoices(
  request: CompletionRequest,
  settings: Settings,
  contextLength: number,
  vocabulary: Vocabulary,
): CompletionChoice[] {
  if (request.structuralTag !== undefined) {
    throw badRequest("The simulator does not support structured_outputs.structural_tag", "structured_outputs");
  }
  return request.prompts.map((prompt) => {
    const tokens = typeof prompt === "string" ? splitTokens(prompt) : prompt.map((id) => vocabulary.token(id));
    return complete(tokens, request, settings, contextLength, vocabulary);
  });
}

function complete(
  prompt: readonly string[],
  request: CompletionRequest,
  settings: Settings,
  contextLength: number,
  vocabulary: Vocabulary,
): CompletionChoice {
  const text = prompt.join("");
  const maxTokens = tokenLimit(prompt.length, request.maxTokens, contextLength);
  const generation = generate([answerCompletion(text, request, settings)], "stop", { ...request, maxTokens });
  const all = generation.said.flatMap((entry) => entry.tokens);
  const stops = new Set(request.stopTokenIds);
  const at = stops.size === 0 ? -1 : all.findIndex((token) => stops.has(vocabulary.id(token)));
  const names = at < 0 ? all : all.slice(0, at + 1);
  const ids = (tokens: readonly string[]) =>
    request.returnTokenIds ? tokens.map((token) => vocabulary.id(token)) : undefined;
  const length = at < 0 && generation.finish === "length";
  return {
    prompt: { text, cacheKey: prompt, ids: ids(prompt) },
    texts: at < 0 ? names : names.with(at, ""),
    names,
    ids: ids(names),
    finish: length ? "length" : "stop",
    stopReason: at < 0 ? generation.stopReason : vocabulary.id(names[at] ?? ""),
    endsInLast: length || at >= 0,
  };
}
