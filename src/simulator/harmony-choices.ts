import { answerCompletion } from "./completion-answer.ts";
import { type CompletionRequest, tokenLimit } from "./completion-request.ts";
import type { CompletionChoice } from "./completion-wire.ts";
import { badRequest } from "./errors.ts";
import { scriptOf } from "./harmony-answer.ts";
import { continueHarmony } from "./harmony-continuation.ts";
import { generateHarmony } from "./harmony-generation.ts";
import { type HarmonyTokenizer, RETURN, START } from "./harmony-tokenizer.ts";
import type { Settings } from "./settings.ts";
import { parseStructuralTag, type StructuralTag } from "./structural-tag.ts";

/** What a gpt-oss generates for each prompt. */
export function harmonyChoices(
  request: CompletionRequest,
  settings: Settings,
  contextLength: number,
  tokenizer: HarmonyTokenizer,
): CompletionChoice[] {
  const tag = structuralTag(request, settings);
  return request.prompts.map((prompt) => {
    const ids = typeof prompt === "string" ? tokenizer.encode(prompt) : prompt;
    const text = tokenizer.decode(ids);
    const maxTokens = tokenLimit(ids.length, request.maxTokens, contextLength);
    const wanted = ids.includes(START)
      ? continueHarmony(ids, { format: request.format, tag, settings }, tokenizer)
      : tokenizer.encodeSegments(scriptOf([], settings) ?? [plainAnswer(text, request, settings), RETURN]);
    const generated = generateHarmony(wanted, request, maxTokens, settings, tokenizer);
    return {
      prompt: { text, cacheKey: ids, ids: request.returnTokenIds ? ids : undefined },
      texts: generated.texts,
      names: request.logprobs === undefined ? generated.texts : generated.ids.map((id) => tokenizer.token(id)),
      ids: request.returnTokenIds ? generated.ids : undefined,
      finish: generated.finish,
      stopReason: generated.stopReason,
      endsInLast: true,
    };
  });
}

/** What follows a prompt that is not Harmony. */
function plainAnswer(prompt: string, request: CompletionRequest, settings: Settings): string {
  return answerCompletion(prompt, request, settings).tokens.join("");
}

function structuralTag(request: CompletionRequest, settings: Settings): StructuralTag | undefined {
  if (request.structuralTag === undefined) return undefined;
  if (!settings.structuralTags) throw badRequest("structural_tag is not supported", "structured_outputs");
  return parseStructuralTag(request.structuralTag);
}
