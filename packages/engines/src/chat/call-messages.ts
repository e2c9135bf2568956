import { hashText } from "../hash.ts";
import type { ChatMessage } from "./messages.ts";

/** Calls and their outputs as the chat templates of model families want them. */

type ToolMessage = Extract<ChatMessage, { role: "tool" }>;
type CallingMessage = Extract<ChatMessage, { role: "assistant" }>;

/** Mistral's templates refuse ids that are not nine letters or digits. */
const MISTRAL = /mistral|mixtral|codestral|devstral|magistral|ministral|pixtral/i;
const MISTRAL_ID = /^[A-Za-z0-9]{9}$/;

/** Kimi K2 was trained on ids that count the conversation's calls, and names tools that do not exist after other ids. */
const KIMI = /kimi/i;

/** The messages with ids of calls as the model's family has them: the same in every turn of a conversation. */
export function withFamilyIds(messages: readonly ChatMessage[], model: string): readonly ChatMessage[] {
  const isKimi = KIMI.test(model);
  if (!isKimi && !MISTRAL.test(model)) return messages;
  const named = new Map<string, string>();
  let calls = 0;
  const idOf = (id: string, name: string) => {
    const own = isKimi ? `functions.${name}:${calls++}` : mistralId(id);
    named.set(id, own);
    return own;
  };
  return messages.map((message) => {
    if (message.role === "tool") {
      return { ...message, tool_call_id: named.get(message.tool_call_id) ?? message.tool_call_id };
    }
    if (message.role !== "assistant" || !message.tool_calls) return message;
    return {
      ...message,
      tool_calls: message.tool_calls.map((call) => ({ ...call, id: idOf(call.id, call.function.name) })),
    };
  });
}

function mistralId(id: string): string {
  return MISTRAL_ID.test(id) ? id : hashText(id).slice(0, 9);
}

/** The messages with each call's output directly after its call: a user's message in between follows it. */
export function withOutputsAfterCalls(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  if (!messages.some(isCalling)) return messages;
  const ordered: ChatMessage[] = [];
  const placed = new Set<ChatMessage>();
  for (const [index, message] of messages.entries()) {
    if (placed.has(message)) continue;
    ordered.push(message);
    for (const output of isCalling(message) ? outputsOf(message, messages, index + 1) : []) {
      placed.add(output);
      ordered.push(output);
    }
  }
  return ordered;
}

function isCalling(message: ChatMessage): message is CallingMessage {
  return message.role === "assistant" && message.tool_calls !== undefined;
}

/** The outputs of a message's calls, in order. They come before the next calls. */
function outputsOf(
  { tool_calls: calls = [] }: CallingMessage,
  messages: readonly ChatMessage[],
  from: number,
): ToolMessage[] {
  const open = new Set(calls.map(({ id }) => id));
  const outputs: ToolMessage[] = [];
  for (let index = from; index < messages.length && open.size > 0; index += 1) {
    const message = messages[index];
    if (message === undefined || isCalling(message)) break;
    if (message.role === "tool" && open.delete(message.tool_call_id)) outputs.push(message);
  }
  return outputs;
}
