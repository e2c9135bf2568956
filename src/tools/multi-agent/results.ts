import { isOfOtherAgent } from "@responses-edge/responses-api/items/multi-agent";
import { askedId, type Item, type OutputItem, repliedId } from "@responses-edge/responses-api/items/registry";
import type { AgentResult } from "../../contract/agent-runs.ts";
import { type Agent, noteAsked } from "./agents.ts";

/** The result of an agent's task, as the agent that gave the task is told of it. */

/** A message between agents, in the form that OpenAI's guide shows. */
export function letter(
  type: string,
  { author, recipient, text }: { author: string; recipient: string; text: string },
): string {
  return `Message Type: ${type}\nTask name: ${recipient}\nSender: ${author}\nPayload:\n${text}`;
}

/** What a task's end asks of the client: its calls, and requests for approvals, by id. */
export function asksIn({ status, output }: AgentResult): Map<string, Item> {
  const asks = new Map<string, Item>();
  for (const item of status === "completed" ? (output as readonly Item[]) : []) {
    const id = askedId(item);
    if (id !== undefined) asks.set(id, item);
    asks.delete(repliedId(item) ?? "");
  }
  return asks;
}

export function waitsForClient(name: string): string {
  return `${name} waits for the application: for outputs of its functions, or an approval. Wait for it again.`;
}

/** What an agent is told of a task that has ended, and the items that show it. */
export interface Told {
  text: string;
  items: OutputItem[];
}

/** Tells the agent `recipient` of a task that has ended: the items of the task's agent, and the message of its result. */
export function tell(agent: Agent, result: AgentResult, recipient: string): Told {
  const { name } = agent;
  // Those of the agents below it name these.
  const items = result.output.filter(isShown).map((item) => ({ agent: { agent_name: name }, ...item }) as OutputItem);
  const asks = asksIn(result);
  if (asks.size > 0) {
    for (const [id, { type }] of asks) noteAsked(agent, id, type);
    return { text: waitsForClient(name), items };
  }
  agent.status = "idle";
  const text = letter("FINAL_ANSWER", { author: name, recipient, text: answerOf(result) });
  const message = {
    id: "",
    type: "agent_message",
    author: name,
    recipient,
    content: [{ type: "input_text", text }],
  } as unknown as OutputItem;
  return { text, items: result.status === "completed" ? [...items, message] : [message] };
}

/** Lists of tools and compactions concern the agent's own prompts. */
function isShown({ type }: OutputItem): boolean {
  return type !== "mcp_list_tools" && type !== "compaction";
}

/** The result of a task, in words for the agent that gave it. */
function answerOf({ status, error, output }: AgentResult): string {
  if (status !== "completed") return `The task has not been completed (${status}). ${error ?? ""}`.trim();
  const message = output.findLast((item) => item.type === "message" && !isOfOtherAgent(item));
  const parts = message?.type === "message" ? message.content : [];
  return parts
    .map((part) => (part.type === "output_text" ? part.text : part.type === "refusal" ? part.refusal : ""))
    .join("");
}
