import type { ChatMessage } from "./chat-request.ts";
import type { Json, JsonObject } from "./json.ts";
import { type Settings, THOUGHT_VARIABLES } from "./settings.ts";

/**
 * The messages as a template reads them that drops the thoughts before the user's last message, always or unless one of its
 * variables keeps them.
 */
export function withOldThoughts(
  messages: ChatMessage[],
  variables: JsonObject,
  { oldThoughts }: Settings,
): ChatMessage[] {
  if (oldThoughts === "kept") return messages;
  if (oldThoughts !== "dropped" && variables[oldThoughts] === THOUGHT_VARIABLES[oldThoughts]) return messages;
  const last = messages.findLastIndex(({ role }) => role === "user");
  return messages.map((message, index) => (index < last ? { ...message, reasoning: "" } : message));
}

/** The prompt text of a chat: tools as JSON, then every message under its `<|role|>` line. */
export function renderPrompt(
  messages: readonly ChatMessage[],
  tools: Json | undefined,
  ending: "generation prompt" | "open message" | "closed message",
): string {
  let prompt = tools === undefined || tools === null ? "" : `<|tools|>\n${JSON.stringify(tools)}\n`;
  for (const message of messages) {
    prompt += `<|${message.role}|>\n`;
    if (message.reasoning !== "") prompt += `<think>${message.reasoning}</think>\n`;
    prompt += message.text;
    for (const call of message.toolCalls) prompt += `\n<|call|>${call.name} ${call.arguments}`;
    prompt += "\n";
  }
  if (ending === "open message") return prompt.slice(0, -1);
  return ending === "generation prompt" ? `${prompt}<|assistant|>\n` : prompt;
}
