import { type Item, isClientCall, isServerCall } from "@responses-edge/responses-api/items/registry";
import { mustCall } from "@responses-edge/responses-api/tools";
import type { Prompt, Resumption } from "@responses-edge/turn/contract/engine";
import { boundAnswer } from "../bound-formats.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { begunResumption } from "./begun-answer.ts";
import type { ChatMessage } from "./messages.ts";

/**
 * Chat templates can leave only the text of the last assistant message open (`continue_final_message`), not its
 * reasoning, and not a call. Reasoning after that text, and calls of hosted tools that were not run, are generated
 * anew. Templates trim white space at the end of the text, so it is held back. Text in a format, and a shown call of the
 * client's, go on under the grammar of their rest (`begunResumption`). `require` tells whether there is a suitable model
 * server, and makes the turn continue there.
 */
export function resumptionAfter(
  prompt: Prompt,
  partial: readonly Item[],
  require: (suits: (dialect: Dialect) => boolean) => boolean,
  endsThought = false,
): Resumption | undefined {
  const begun = partial.findIndex(({ type }) => type !== "reasoning");
  const thoughts = begun < 0 ? partial.length : begun;
  if (endsThought && partial.slice(thoughts).every(canGenerateAgain)) {
    return resumptionAfterThought(prompt, partial, thoughts, require);
  }
  const [only] = partial;
  // Only white space: the model begins again.
  if (only && partial.length === 1 && isBlank(only)) return { prompt, repeated: assistantTextOf(only) };
  const kept = partial.findLastIndex((item) => !canGenerateAgain(item)) + 1;
  const anew = partial.length - kept;
  const said = partial.slice(0, kept).filter((item) => !isCutCall(item));
  const last = said.at(-1);
  if (!last) return { prompt, repeated: "", anew };
  const mayContinue = (after: readonly Item[]) => require((dialect) => continuesAfter(after, dialect));
  if (isClientCall(last) || boundAnswer(prompt.request)) return begunResumption(prompt, said, anew, mayContinue);
  if (prompt.request.structured_outputs != null) return undefined;
  if (last.type !== "message" || last.role !== "assistant") return undefined;
  if (said.some((item) => item.type !== "message" && item.type !== "reasoning")) return undefined;
  if (last.content.some((part) => part.type !== "output_text")) return undefined;
  const text = assistantTextOf(last);
  const trimmed = text.trimEnd();
  const open: Item = {
    type: "message",
    role: "assistant",
    status: "in_progress",
    content: [{ type: "output_text", text: trimmed, annotations: [], logprobs: [] }],
  };
  const items = [...prompt.items, ...said.slice(0, -1), open];
  if (!mayContinue(items)) return undefined;
  return { prompt: { ...prompt, items, corrections: [] }, repeated: text.slice(trimmed.length), anew };
}

/** The message that has a model answer after its reasoning, which stands before it. */
const END_OF_REASONING = "Your reasoning ends here. Answer now, without reasoning any further.";

/**
 * Goes on after reasoning that is over, the first `count` items. The others are generated anew. An empty open message after it makes a template close it, where a server
 * continues after reasoning; text in a format, or a call that is required, needs a grammar, which begins with a new
 * message. Elsewhere the reasoning is quoted, and the model is asked without reasoning.
 */
function resumptionAfterThought(
  prompt: Prompt,
  partial: readonly Item[],
  count: number,
  require: (suits: (dialect: Dialect) => boolean) => boolean,
): Resumption {
  const thoughts = partial.slice(0, count);
  const anew = partial.length - count;
  const { request, corrections = [] } = prompt;
  const isBound = request.structured_outputs != null || (request.text?.format?.type ?? "text") !== "text";
  const isFree = !isBound && !mustCall(request.tool_choice ?? "auto") && corrections.length === 0;
  if (isFree && thoughts.length > 0 && require(({ continues }) => continues === "after_thoughts")) {
    const open: Item = { type: "message", role: "assistant", status: "in_progress", content: [] };
    return { prompt: { ...prompt, items: [...prompt.items, ...thoughts, open] }, repeated: "", anew };
  }
  const said = thoughts.map(thoughtOf).join("\n");
  const content = said === "" ? END_OF_REASONING : `You have reasoned so far:\n\n${said}\n\n${END_OF_REASONING}`;
  const asked = { ...request, reasoning: { ...request.reasoning, effort: "none" as const } };
  const note: ChatMessage = { role: "user", content };
  return {
    prompt: { ...prompt, request: asked, corrections: [...corrections, note] },
    repeated: "",
    anew,
    isQuoted: true,
  };
}

function thoughtOf(item: Item): string {
  if (item.type !== "reasoning") return "";
  return (item.content ?? item.summary).map(({ text }) => text).join("\n");
}

/** Tells whether a server continues the open message at the end of a prompt. */
export function continuesAfter(items: readonly Item[], { continues }: Dialect): boolean {
  if (continues !== "without_thoughts") return continues === "after_thoughts";
  const answer = items.slice(items.findLastIndex((item) => !isOfAnswer(item)) + 1);
  return !answer.some(({ type }) => type === "reasoning");
}

function isOfAnswer(item: Item): boolean {
  return item.type === "reasoning" || (item.type === "message" && item.role === "assistant");
}

/**
 * Reasoning, white space, and calls that this server has not run yet: nothing is lost if the model generates them
 * again.
 */
function canGenerateAgain(item: Item): boolean {
  return item.type === "reasoning" || isServerCall(item) || isCutCall(item) || isBlank(item);
}

/** Tells whether an item is a truncated call, which was not made: the model was told, or is asked again. */
function isCutCall(item: Item): boolean {
  return (item.type === "function_call" || item.type === "custom_tool_call") && item.status === "incomplete";
}

/** Tells whether an item is an assistant's message of only white space. */
function isBlank(item: Item): boolean {
  if (item.type !== "message" || item.role !== "assistant") return false;
  return item.content.every((part) => part.type === "output_text") && assistantTextOf(item).trim() === "";
}

function assistantTextOf(item: Item): string {
  if (item.type !== "message" || item.role !== "assistant") return "";
  return item.content.map((part) => (part.type === "output_text" ? part.text : "")).join("");
}
