import { answerCompletion } from "./completion-answer.ts";
import type { CompletionRequest } from "./completion-request.ts";
import type { CompletionChoice } from "./completion-wire.ts";
import { generateAll, type Token } from "./engine.ts";
import { badField } from "./errors.ts";
import { END, endlessWords } from "./generation.ts";
import type { Settings } from "./settings.ts";
import { tokenLimit } from "./token-limit.ts";
import { splitTokens, type Vocabulary } from "./tokenizer.ts";

/** The output of a model with the simulator's own vocabulary, for each prompt. */
export function completionChoices(
  request: CompletionRequest,
  settings: Settings,
  contextLength: number,
  vocabulary: Vocabulary,
): CompletionChoice[] {
  if (request.structuralTag !== undefined) {
    throw badField("The simulator does not support structured_outputs.structural_tag", "structured_outputs");
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
  const maxTokens = tokenLimit(prompt.length, { ...request, maxTokensName: "max_tokens" }, contextLength, settings);
  const limits = {
    maxTokens,
    eos: request.ignoreEos ? undefined : vocabulary.id(END),
    stopIds: new Set(request.stopTokenIds),
    stop: request.stop,
    includeStop: request.includeStop,
    repetition: request.repetition,
  };
  const { steps, ending } = generateAll(answer(text, request, settings, vocabulary), limits);
  return {
    prompt: {
      text,
      cacheKey: prompt,
      ids: request.returnTokenIds ? prompt.map((token) => vocabulary.id(token)) : undefined,
    },
    texts: steps.map((step) => step.text),
    names: steps.map((step) => step.name),
    ids: request.returnTokenIds ? steps.map((step) => step.id) : undefined,
    ...ending,
  };
}

function* answer(
  prompt: string,
  request: CompletionRequest,
  settings: Settings,
  vocabulary: Vocabulary,
): Generator<Token> {
  for (const name of answerCompletion(prompt, request, settings).tokens) {
    yield { id: vocabulary.id(name), text: name, name };
  }
  if (request.ignoreEos) yield* endlessWords(vocabulary);
  else yield { id: vocabulary.id(END), text: "", name: END };
}
