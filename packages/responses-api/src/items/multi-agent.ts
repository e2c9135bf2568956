import { list } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import type { ItemType } from "./item-type.ts";
import { callId, inputImage, itemId, outputText, text } from "./parts.ts";
import { answered, COMPLETED, given, normal } from "./shapes.ts";

/** The items of hosted agents (openai 7.59 beta, `responses_multi_agent=v1`). */

/** The agent that gets the request; it spawns the others. */
export const ROOT_AGENT = "/root";

/** The actions of an agent, as the functions that its model calls. */
export const AGENT_ACTIONS = [
  "spawn_agent",
  "send_message",
  "followup_task",
  "wait_agent",
  "interrupt_agent",
  "list_agents",
] as const;
export type AgentAction = (typeof AGENT_ACTIONS)[number];

/** The agent that an item belongs to; undefined for an item without one, such as an input item. */
export function agentOf(item: object): string | undefined {
  const { agent } = item as { agent?: { agent_name?: unknown } | null };
  return typeof agent?.agent_name === "string" ? agent.agent_name : undefined;
}

/**
 * Tells whether an item belongs to an agent that another prompt shows. In the response of an agent's task, and in its past, the
 * agent's own items name no agent.
 */
export function isOfOtherAgent(item: object): boolean {
  return (agentOf(item) ?? ROOT_AGENT) !== ROOT_AGENT;
}

const action = z.enum(AGENT_ACTIONS);
const STATUSES = ["in_progress", "completed", "incomplete", "failed"] as const;

/** A call by which an agent directs others. OpenAI's has no status. */
export const multiAgentCall = {
  prefix: "mac",
  kind: "server_call",
  input: given("multi_agent_call", {
    id: itemId,
    call_id: callId,
    action,
    arguments: text,
    status: z.enum(STATUSES).nullish(),
  }).transform(normal("id type call_id action arguments status", COMPLETED)),
  output: () =>
    answered("multi_agent_call", { call_id: z.string(), action, arguments: z.string(), status: z.enum(STATUSES) }),
  events: {},
} as const satisfies ItemType;

const outputPart = z
  .object({ type: z.literal("output_text"), text })
  .transform((given) => ({ ...given, annotations: [], logprobs: [] }));

/** Its result. `response_id` is the response of the task that the call has begun. */
export const multiAgentCallOutput = {
  prefix: "maco",
  kind: "none",
  input: given("multi_agent_call_output", {
    id: itemId,
    call_id: callId,
    action,
    output: list(outputPart, { max: 128 }),
  }).transform(normal("id type call_id action output")),
  output: () =>
    answered("multi_agent_call_output", {
      call_id: z.string(),
      action,
      output: z.array(outputText()),
      response_id: z.string().optional(),
    }),
  events: {},
} as const satisfies ItemType;

const TEXTS = ["input_text", "output_text", "text"] as const;
const part = z.discriminatedUnion("type", [
  z.object({ type: z.enum(TEXTS), text }),
  inputImage,
  z.object({ type: z.literal("encrypted_content"), encrypted_content: text }),
]);

/** The result of an agent's task, for the agent that gave it. This server makes texts only; others encrypt them. */
export const agentMessage = {
  prefix: "amsg",
  kind: "none",
  input: given("agent_message", {
    id: itemId,
    author: z.string().min(1).max(256),
    recipient: z.string().min(1).max(256),
    content: list(part, { max: 128 }),
  }).transform(normal("id type author recipient content")),
  output: () =>
    answered("agent_message", {
      author: z.string(),
      recipient: z.string(),
      content: z.array(
        z.union([
          z.object({ type: z.enum(TEXTS), text: z.string() }),
          z.object({
            type: z.literal("input_image"),
            image_url: z.string().nullish(),
            file_id: z.string().nullish(),
            detail: z.string(),
          }),
          z.object({ type: z.literal("encrypted_content"), encrypted_content: z.string() }),
        ]),
      ),
    }),
  events: {},
} as const satisfies ItemType;
