import type { Message } from "openai/resources/conversations/conversations";
import type { ConversationItem } from "openai/resources/conversations/items";
import type { Response } from "openai/resources/responses/responses";
import { isObject, type JsonObject } from "../../dev/simulator/json.ts";
import { eventually, type Gateway } from "./support.ts";

/** Helpers of the tests of conversations and of background runs. */

type Served = Pick<Gateway, "openai" | "vllm">;

/** Waits until a background response has ended in any way. */
export async function ended({ openai }: Served, id: string): Promise<Response> {
  return eventually(async () => {
    const response = await openai.responses.retrieve(id);
    return response.status === "queued" || response.status === "in_progress" ? undefined : response;
  });
}

/** All items of a conversation, oldest first. */
export async function itemsOf({ openai }: Served, conversation: string): Promise<ConversationItem[]> {
  return Array.fromAsync(openai.conversations.items.list(conversation, { order: "asc", limit: 100 }));
}

/** The texts of a conversation's messages, oldest first. */
export async function textsOf(gateway: Served, conversation: string): Promise<string[]> {
  const items = await itemsOf(gateway, conversation);
  return items.filter((item): item is Message => item.type === "message").map(textOf);
}

function textOf({ content }: Message): string {
  return content.map((part) => ("text" in part ? part.text : "")).join("");
}

/** The prompts that reached "vLLM", oldest first, with their requests. */
export function prompts({ vllm }: Pick<Served, "vllm">) {
  return vllm.simulator.requests
    .filter(({ path }) => path === "/v1/chat/completions")
    .map(({ body, state, startedAt, endedAt, release }) => ({
      texts: messagesOf(body).map(({ content }) => String(content)),
      state,
      /** Releases a model that stalls. */
      release,
      startedAt,
      endedAt: endedAt ?? Number.POSITIVE_INFINITY,
    }));
}

/** The prompts that ended with this text of the user. */
export function promptsFor(gateway: Pick<Served, "vllm">, text: string) {
  return prompts(gateway).filter(({ texts }) => texts.at(-1) === text);
}

function messagesOf(body: unknown): JsonObject[] {
  return isObject(body) && Array.isArray(body.messages) ? body.messages.filter(isObject) : [];
}

/**
 * Waits until the prompt that ends with this text has reached "vLLM". Gives the function that releases its model, if it
 * stalls.
 */
export async function reached(gateway: Pick<Served, "vllm">, text: string): Promise<() => void> {
  const prompt = await eventually(() => promptsFor(gateway, text)[0]);
  return prompt.release;
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

let count = 0;

/** A text that no other turn has. */
export function unique(text: string): string {
  count += 1;
  return `${text} ${count}`;
}
