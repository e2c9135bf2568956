import type { ChatMessage } from "./chat-request.ts";
import { isObject, type Json } from "./json.ts";
import { pythonJson } from "./python-text.ts";

/** The prompt of `tiny-qwen3`: ChatML with tools and reasoning. */
export function renderChatml(
  messages: readonly ChatMessage[],
  tools: Json | undefined,
  ending: "generation prompt" | "open message" | "closed message",
  thinks: boolean,
): string {
  const [first] = messages;
  const system = first?.role === "system" ? first.text : undefined;
  let prompt = "";
  if (Array.isArray(tools)) {
    const listed = tools.map((tool) => `${pythonJson(asVllmReads(tool))}\n`).join("");
    const before = system === undefined ? "" : `${system}\n\n`;
    prompt = `<|im_start|>system\n${before}Tools:\n${listed}Call one as <tool_call>{"name": …, "arguments": {…}}</tool_call>.<|im_end|>\n`;
  } else if (system !== undefined) {
    prompt = `<|im_start|>system\n${system}<|im_end|>\n`;
  }
  for (const message of system === undefined ? messages : messages.slice(1)) prompt += renderMessage(message);
  if (ending === "open message") return prompt.slice(0, -"<|im_end|>\n".length);
  if (ending === "closed message") return prompt;
  return `${prompt}<|im_start|>assistant\n${thinks ? "" : "<think>\n\n</think>\n\n"}`;
}

function renderMessage(message: ChatMessage): string {
  const { role, text } = message;
  if (role === "tool") return `<|im_start|>user\n<tool_response>\n${text}\n</tool_response><|im_end|>\n`;
  if (role !== "assistant") return `<|im_start|>${role}\n${text}<|im_end|>\n`;
  // As in Qwen3's template: the line ends around the reasoning, and before the text after it, are the template's own.
  const isThought = message.reasoning !== "";
  const thoughts = isThought ? `<think>\n${message.reasoning.replace(/^\n+|\n+$/g, "")}\n</think>\n\n` : "";
  const said = isThought ? text.replace(/^\n+/, "") : text;
  const calls = message.toolCalls.map(
    (call) => `<tool_call>\n{"name": "${call.name}", "arguments": ${spaced(call.arguments)}}\n</tool_call>`,
  );
  const parts = said === "" ? calls : [said, ...calls];
  return `<|im_start|>assistant\n${thoughts}${parts.join("\n")}<|im_end|>\n`;
}

/**
 * vLLM parses the arguments of earlier calls, and the template writes them again. Arguments that are not JSON are
 * dropped.
 */
function spaced(text: string): string {
  try {
    return pythonJson(JSON.parse(text));
  } catch {
    return "{}";
  }
}

function asVllmReads(tool: Json): Json {
  if (!isObject(tool) || !isObject(tool.function)) return tool;
  const { name, description, parameters, ...rest } = tool.function;
  return {
    type: "function",
    function: { name, description: description ?? null, parameters: parameters ?? null, ...rest },
  };
}
