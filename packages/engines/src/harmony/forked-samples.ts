import { CALL, END, renderMessage, toText } from "@responses-edge/harmony";
import type { RawMessage, Sampled } from "@responses-edge/turn/contract/engine";
import { withHeader } from "./conversation.ts";
import { fromRawMessage } from "./raw-messages.ts";

/** The beginning of every message of the model, which is the end of its prompt. */
const BEGINNING = "<|start|>assistant";

/**
 * The samples of messages that the model has written in one round, as text with special tokens as literals. With `open`, the last message has
 * only this text so far. Undefined if the last message does not begin with it.
 */
export function samplesOf(messages: readonly RawMessage[], open: string | undefined): Sampled | undefined {
  const written = messages.map(fromRawMessage).filter(({ role }) => role === "assistant");
  const last = written.pop();
  if (!last) return undefined;
  const rendered = written.map((message) => toText(renderMessage(withHeader(message, "channel-first")))).join("");
  const whole = last.content.map((part) => (part.type === "text" ? part.text : "")).join("");
  if (open !== undefined && !whole.startsWith(open)) return undefined;
  const message = open === undefined ? last : { ...last, content: [{ type: "text" as const, text: open }] };
  const segments = renderMessage(withHeader(message, "channel-first"));
  const end = segments.at(-1);
  const isClosed = open === undefined || (end !== END && end !== CALL);
  return { text: (rendered + toText(isClosed ? segments : segments.slice(0, -1))).slice(BEGINNING.length) };
}
