import { isJsonObject } from "@responses-edge/responses-api/json";
import type { PromptPart, RenderedPrompt } from "@responses-edge/turn/contract/engine";

/** A prompt for a chat template, in parts, and as the model server renders it. */

/** The fields of a request that are in its prompt. */
interface PromptBody {
  messages: readonly { role: string }[];
  tools?: readonly { function: { name: string } }[];
  chat_template_kwargs?: object;
}

/** The parts of a prompt, from the body that has it counted (`toCountRequest`). */
export function partsOf(body: string): PromptPart[] {
  const { messages, tools = [], chat_template_kwargs: variables } = JSON.parse(body) as PromptBody;
  return [
    ...(variables ? [{ kind: "effort" as const, text: JSON.stringify(variables) }] : []),
    ...tools.map((tool) => ({ kind: "tool" as const, name: tool.function.name, text: JSON.stringify(tool) })),
    ...messages.map((message) => ({ kind: "input" as const, name: message.role, text: JSON.stringify(message) })),
  ];
}

/** The body that has a prompt rendered, without the beginning of an answer; with `messages`, only so many of its messages. */
export function renderBody(body: string, messages?: number): string {
  const whole = JSON.parse(body) as PromptBody;
  return JSON.stringify({ ...whole, messages: whole.messages.slice(0, messages), add_generation_prompt: false });
}

/** A prompt in the answer of a server: vLLM's `tokens` of `/tokenize`, or llama.cpp's `prompt` of `/apply-template`. */
export function renderedIn(answer: unknown): RenderedPrompt | undefined {
  if (!isJsonObject(answer)) return undefined;
  const { tokens, prompt } = answer;
  if (Array.isArray(tokens)) return tokens as number[];
  return typeof prompt === "string" ? prompt : undefined;
}
