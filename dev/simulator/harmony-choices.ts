import { answerCompletion } from "./completion-answer.ts";
import type { CompletionRequest } from "./completion-request.ts";
import type { CompletionChoice } from "./completion-wire.ts";
import { badField } from "./errors.ts";
import { admits, compileText } from "./grammar.ts";
import { scriptOf } from "./harmony-answer.ts";
import { continueHarmony } from "./harmony-continuation.ts";
import { generateHarmony } from "./harmony-generation.ts";
import { type HarmonyTokenizer, RETURN, START } from "./harmony-tokenizer.ts";
import { isObject, type Json, parseJson } from "./json.ts";
import { harmonyScript, type Script } from "./script-language.ts";
import type { Settings } from "./settings.ts";
import { parseStructuralTag, type StructuralTag, type Tag, textGrammar } from "./structural-tag.ts";
import { admitsText } from "./text-grammar.ts";
import { tokenLimit } from "./token-limit.ts";

/** The output of a gpt-oss for each prompt. A `scripted` model follows the script in its last user text. */
export function harmonyChoices(
  request: CompletionRequest,
  settings: Settings,
  contextLength: number,
  tokenizer: HarmonyTokenizer,
  scripted: boolean,
): CompletionChoice[] {
  const tag = structuralTag(request, settings);
  return request.prompts.map((prompt) => {
    const ids = typeof prompt === "string" ? tokenizer.encode(prompt) : prompt;
    const text = tokenizer.decode(ids);
    const maxTokens = tokenLimit(ids.length, { ...request, maxTokensName: "max_tokens" }, contextLength, settings);
    const script = scripted ? scriptOfUser(text, request, tag) : undefined;
    const wanted =
      script !== undefined
        ? tokenizer.encode(script.text)
        : ids.includes(START)
          ? continueHarmony(ids, { format: request.format, tag, settings, rest: restOf(request, tag, text) }, tokenizer)
          : tokenizer.encodeSegments(scriptOf([], settings) ?? [plainAnswer(text, request, settings), RETURN]);
    const generated = generateHarmony(wanted, request, maxTokens, settings, tokenizer);
    return {
      prompt: { text, cacheKey: ids, ids: request.returnTokenIds ? ids : undefined },
      texts: generated.texts,
      names: generated.names,
      ids: request.returnTokenIds ? generated.ids : undefined,
      finish: generated.finish,
      stopReason: generated.stopReason,
      delayMs: script?.delayMs ?? 0,
    };
  });
}

/** The output of `tiny-gpt-oss`. `undefined` if a grammar does not accept it. */
function scriptOfUser(
  prompt: string,
  { format }: CompletionRequest,
  tag: StructuralTag | undefined,
): Script | undefined {
  const script = harmonyScript(prompt);
  const final = /<\|channel\|>final(?: <\|constrain\|>json)?<\|message\|>(.*?)(?:<\|return\|>|<\|end\|>|$)/s.exec(
    script.text,
  )?.[1];
  if (final !== undefined && !saysFinal(final, format, tag)) return undefined;
  const [, called, given = ""] =
    /to=functions\.([^\s<]+)[^<]*(?:<\|[a-z]+\|>[^<]*)*?<\|message\|>(.*?)(?:<\|[a-z]+\|>|$)/s.exec(script.text) ?? [];
  if (called !== undefined && tag !== undefined && !isCallAdmitted(tag.functions.get(called), given)) return undefined;
  const ended = /<\|(?:return|call|endoftext)\|>$/.test(script.text);
  return { ...script, text: ended ? script.text : `${script.text}<|return|>` };
}

/** True if the final message may be this one. */
function saysFinal(text: string, format: CompletionRequest["format"], tag: StructuralTag | undefined): boolean {
  if (format.kind === "json_schema" && !admits(format.schema, text)) return false;
  if (format.kind === "grammar") return admitsText(compileText(format), text);
  if (format.kind !== "text" && !admits({}, text)) return false;
  if (tag === undefined) return true;
  if (tag.finals.length === 0) return false;
  return tag.finals.some(({ content }) => isAdmitted(content, text));
}

function isCallAdmitted(tags: readonly Tag[] | undefined, given: string): boolean {
  return tags?.some(({ content }) => isAdmitted(content, given)) ?? false;
}

/** True if the text may follow the tag's beginning. A tag that binds nothing accepts any text. */
function isAdmitted(content: Json | undefined, text: string): boolean {
  if (!isObject(content)) return true;
  switch (content.type) {
    case "json_schema":
      return admits(content.json_schema ?? {}, text);
    case "const_string":
      return content.value === text;
    case "grammar":
    case "regex":
      return admitsText(textGrammar(content), text);
    case "or":
      return Array.isArray(content.elements) && content.elements.some((element) => isAdmitted(element, text));
    default:
      return true;
  }
}

/** The output after a prompt that is not Harmony. */
function plainAnswer(prompt: string, request: CompletionRequest, settings: Settings): string {
  return answerCompletion(prompt, request, settings).tokens.join("");
}

/** The format that binds the rest of an output, where the prompt has its beginning: not all of its messages are tags. */
function restOf(
  { structuralTag: given }: CompletionRequest,
  tag: StructuralTag | undefined,
  prompt: string,
): Json | undefined {
  const hasTags = tag && tag.functions.size + tag.others.length + tag.finals.length > 0;
  if (given === undefined || (hasTags && prompt.endsWith("<|start|>assistant"))) return undefined;
  const whole = typeof given === "string" ? parseJson(given) : given;
  return isObject(whole) ? whole.format : undefined;
}

function structuralTag(request: CompletionRequest, settings: Settings): StructuralTag | undefined {
  if (request.structuralTag === undefined) return undefined;
  if (!settings.structuralTags) throw badField("structural_tag is not supported", "structured_outputs");
  return parseStructuralTag(request.structuralTag);
}
