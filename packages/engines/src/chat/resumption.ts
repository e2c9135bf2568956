import { type Item, isServerCall } from "@responses-edge/responses-api/items/registry";
import type { Prompt, Resumption } from "@responses-edge/turn/engine";
import type { Dialect } from "../dialects/dialect.ts";

/**
 * Chat templates can be left open only in the text of the last assistant message (`continue_final_message`): not in its reasoning, and not
 * in a call. Thoughts after that text, and calls that this server would have run, are said anew; a client might act on half a call, so one
 * of its own that it has seen is the end. White space at the end of the text is what templates trim, so it is held back. Text under a
 * grammar cannot be continued: vLLM's grammars begin with the first token that it generates. `require` tells whether there is a model
 * server that suits, and has the turn go on there.
 */
export function resumptionAfter(
  prompt: Prompt,
  partial: readonly Item[],
  require: (suits: (dialect: Dialect) => boolean) => boolean,
): Resumption | undefined {
  const [only] = partial;
  // Nothing but white space: the model begins again.
  if (only && partial.length === 1 && isBlank(only)) return { prompt, repeated: assistantTextOf(only) };
  const kept = partial.findLastIndex((item) => !canBeSaidAnew(item)) + 1;
  const anew = partial.length - kept;
  const said = partial.slice(0, kept).filter((item) => !isCutCall(item));
  const last = said.at(-1);
  if (!last) return { prompt, repeated: "", anew };
  const { structured_outputs, text: format } = prompt.request;
  if (structured_outputs != null || (format?.format?.type ?? "text") !== "text") return undefined;
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
  if (!require((dialect) => goesOnWith(items, dialect))) return undefined;
  return { prompt: { ...prompt, items, corrections: [] }, repeated: text.slice(trimmed.length), anew };
}

/** Tells whether a server continues the open message that a prompt ends in. */
export function goesOnWith(items: readonly Item[], { continues }: Dialect): boolean {
  if (continues !== "without_thoughts") return continues === "after_thoughts";
  const answer = items.slice(items.findLastIndex((item) => !isOfAnswer(item)) + 1);
  return !answer.some(({ type }) => type === "reasoning");
}

function isOfAnswer(item: Item): boolean {
  return item.type === "reasoning" || (item.type === "message" && item.role === "assistant");
}

/** Thoughts, white space, and calls that this server has not run yet: nothing is lost when a model thinks again. */
function canBeSaidAnew(item: Item): boolean {
  return item.type === "reasoning" || isServerCall(item) || isCutCall(item) || isBlank(item);
}

/** Tells whether an item is a call that was cut and so not made: the model was told, or is to be asked again. */
function isCutCall(item: Item): boolean {
  return (item.type === "function_call" || item.type === "custom_tool_call") && item.status === "incomplete";
}

/** Tells whether an item is an assistant's message that says nothing but white space. */
function isBlank(item: Item): boolean {
  if (item.type !== "message" || item.role !== "assistant") return false;
  return item.content.every((part) => part.type === "output_text") && assistantTextOf(item).trim() === "";
}

function assistantTextOf(item: Item): string {
  if (item.type !== "message" || item.role !== "assistant") return "";
  return item.content.map((part) => (part.type === "output_text" ? part.text : "")).join("");
}
