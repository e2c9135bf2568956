import { z } from "zod";
import { list } from "./collections.ts";
import { MAX_ID_LENGTH } from "./ids.ts";
import { type InputPart, inputPart, inputText, itemId, itemStatus, text, withId } from "./item-parts.ts";
import { toolItems } from "./tool-items.ts";

export type { InputPart } from "./item-parts.ts";

/**
 * Input items as clients send them, and the normal form in which the rest of the code knows them.
 *
 * Every schema tolerates unknown keys (they are dropped) and gives the normal form: messages always have
 * `type: "message"` and an array of parts. What this server cannot carry to a model is refused here, by path.
 */

/** OpenAI's limit of `encrypted_content`, in characters. */
export const MAX_SEALED_LENGTH = 20_971_520;

const outputText = z.object({
  type: z.literal("output_text"),
  text,
  annotations: z.array(z.unknown()).nullish(),
  logprobs: z.array(z.unknown()).nullish(),
});

const refusal = z.object({ type: z.literal("refusal"), refusal: text });

function toInputParts(content: string | InputPart[]): InputPart[] {
  return typeof content === "string" ? [{ type: "input_text", text: content }] : content;
}

function toOutputText(content: string): OutputTextPart {
  return { type: "output_text", text: content, annotations: [], logprobs: [] };
}

function inputMessage<Role extends "user" | "system" | "developer", Part extends z.ZodType<InputPart>>(
  role: Role,
  part: Part,
) {
  return z
    .object({
      type: z.literal("message"),
      role: z.literal(role),
      content: z.union([text, list(part)]),
      id: itemId,
      status: itemStatus,
    })
    .transform((message) => ({
      type: message.type,
      ...(message.id != null && { id: message.id }),
      role: message.role,
      status: "completed" as const,
      content: toInputParts(message.content),
    }));
}

/** An assistant's earlier message; `input_text` in it is read as `output_text` (chat clients send that). */
const assistantMessage = z
  .object({
    type: z.literal("message"),
    role: z.literal("assistant"),
    content: z.union([text, list(z.discriminatedUnion("type", [outputText, refusal, inputText]))]),
    id: itemId,
    status: itemStatus,
    phase: z.enum(["commentary", "final_answer"]).nullish(),
  })
  .transform((message) => ({
    type: message.type,
    ...(message.id != null && { id: message.id }),
    role: message.role,
    status: message.status ?? ("completed" as const),
    ...(message.phase != null && { phase: message.phase }),
    content:
      typeof message.content === "string"
        ? [toOutputText(message.content)]
        : message.content.map((part) => (part.type === "refusal" ? part : toOutputText(part.text))),
  }));

const message = z.discriminatedUnion("role", [
  inputMessage("user", inputPart),
  inputMessage("system", inputText),
  inputMessage("developer", inputText),
  assistantMessage,
]);

/**
 * Reasoning that a client gives back: plain (`content` or `summary`), sealed (`encrypted_content`), or both. Whether it
 * can be opened shows when the prompt is made.
 */
const reasoning = z
  .object({
    type: z.literal("reasoning"),
    id: itemId,
    summary: list(z.object({ type: z.literal("summary_text"), text })).nullish(),
    content: list(z.object({ type: z.literal("reasoning_text"), text })).nullish(),
    encrypted_content: z.string().max(MAX_SEALED_LENGTH).nullish(),
    status: itemStatus,
  })
  .transform((item) => ({
    type: item.type,
    ...(item.id != null && { id: item.id }),
    summary: item.summary ?? [],
    ...(item.content?.length && { content: item.content }),
    ...(item.encrypted_content && { encrypted_content: item.encrypted_content }),
    status: item.status ?? ("completed" as const),
  }));

/** Calls of tools that a server ran, as a client gives them back. What the model saw of a search is not in them. */
const mcpCall = z
  .object({
    type: z.literal("mcp_call"),
    id: itemId,
    server_label: z.string().min(1).max(64),
    name: z.string().min(1).max(256),
    arguments: text,
    output: text.nullish(),
    error: z.unknown().optional(),
    approval_request_id: itemId,
    status: z.enum(["in_progress", "completed", "incomplete", "calling", "failed"]).nullish(),
  })
  .transform(({ id, status, output, error, approval_request_id: request, ...call }) => ({
    ...withId(id),
    ...call,
    status: status ?? ("completed" as const),
    approval_request_id: request ?? null,
    output: output ?? null,
    error: error ?? null,
  }));

const mcpListTools = z
  .object({
    type: z.literal("mcp_list_tools"),
    id: itemId,
    server_label: z.string().min(1).max(64),
    tools: list(
      z.object({
        name: z.string().min(1).max(256),
        description: z.string().nullish(),
        input_schema: z.record(z.string(), z.unknown()),
        annotations: z.record(z.string(), z.unknown()).nullish(),
      }),
      { max: 5_000 },
    ),
    error: z.unknown().optional(),
  })
  .transform(({ id, error, tools, ...item }) => ({
    ...withId(id),
    ...item,
    tools: tools.map(({ description, annotations, ...tool }) => ({
      ...tool,
      ...(description != null && { description }),
      ...(annotations != null && { annotations }),
    })),
    ...(error != null && { error }),
  }));

const mcpApprovalRequest = z
  .object({
    type: z.literal("mcp_approval_request"),
    id: itemId,
    server_label: z.string().min(1).max(64),
    name: z.string().min(1).max(256),
    arguments: text,
  })
  .transform(({ id, ...item }) => ({ ...withId(id), ...item }));

const mcpApprovalResponse = z
  .object({
    type: z.literal("mcp_approval_response"),
    id: itemId,
    approval_request_id: z.string().min(1).max(MAX_ID_LENGTH),
    approve: z.boolean(),
    reason: text.nullish(),
  })
  .transform(({ id, reason, ...item }) => ({ ...withId(id), ...item, reason: reason ?? null }));

const webSearchCall = z
  .object({
    type: z.literal("web_search_call"),
    id: itemId,
    action: z.looseObject({ type: z.enum(["search", "open_page", "find_in_page", "find"]) }).nullish(),
    status: z.enum(["in_progress", "searching", "completed", "failed", "incomplete"]).nullish(),
  })
  .transform(({ id, action, status, type }) => ({
    ...withId(id),
    type,
    action: action ?? { type: "search" as const, query: "" },
    status: status ?? ("completed" as const),
  }));

const codeInterpreterCall = z
  .object({
    type: z.literal("code_interpreter_call"),
    id: itemId,
    code: text.nullish(),
    container_id: z.string().max(256).nullish(),
    outputs: list(z.looseObject({ type: z.enum(["logs", "image"]) })).nullish(),
    status: z.enum(["in_progress", "completed", "incomplete", "interpreting", "failed"]).nullish(),
  })
  .transform(({ id, code, container_id: container, outputs, status, type }) => ({
    ...withId(id),
    type,
    code: code ?? null,
    container_id: container ?? "auto",
    outputs: outputs ?? null,
    status: status ?? ("completed" as const),
  }));

/** What stands for all that came before it (docs/compaction.md). */
const compaction = z
  .object({
    type: z.literal("compaction"),
    id: itemId,
    encrypted_content: z.string().min(1).max(MAX_SEALED_LENGTH),
  })
  .transform(({ id, ...item }) => ({ ...withId(id), ...item }));

/** Asks for a compaction of what came before it, and for nothing else. */
const compactionTrigger = z
  .object({ type: z.literal("compaction_trigger"), id: itemId })
  .transform(({ id, ...item }) => ({ ...withId(id), ...item }));

const itemReference = z.object({ type: z.literal("item_reference"), id: z.string().min(1).max(MAX_ID_LENGTH) });

/** Items of tools of OpenAI's that no model gets to use here, such as a conversation that began there has. */
export const FOREIGN_ITEM_TYPES = [
  "computer_call",
  "computer_call_output",
  "file_search_call",
  "image_generation_call",
  "program",
  "program_output",
] as const;

/** Kept and given back as they came. No prompt has them: no engine has a form for them. */
const foreignItem = z
  .looseObject({ type: z.enum(FOREIGN_ITEM_TYPES), id: itemId })
  .transform(({ id, ...item }): { type: (typeof FOREIGN_ITEM_TYPES)[number]; id?: string } => ({
    ...withId(id),
    // OpenAI's lists have it, requests may leave it out.
    ...(item.type !== "program" && { status: "completed" }),
    ...item,
  }));

/** Fills in the `type` that easy messages and item references may leave out. */
function withItemType(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (!("type" in value) || value.type == null) {
    if ("role" in value) return { ...value, type: "message" };
    if ("id" in value) return { ...value, type: "item_reference" };
  }
  return value;
}

/** One element of `input`, in normal form. */
export const inputItem = z.preprocess(
  withItemType,
  z.discriminatedUnion("type", [
    message,
    ...toolItems,
    reasoning,
    mcpCall,
    mcpListTools,
    mcpApprovalRequest,
    mcpApprovalResponse,
    webSearchCall,
    codeInterpreterCall,
    compaction,
    compactionTrigger,
    foreignItem,
    itemReference,
  ]),
);

export type OutputTextPart = { type: "output_text"; text: string; annotations: unknown[]; logprobs: unknown[] };
export type InputItem = z.output<typeof inputItem>;
export type ItemReference = z.output<typeof itemReference>;

/** An item whose content is here: what a prompt is built from and what the store keeps. */
export type Item = Exclude<InputItem, ItemReference>;
export type CompactionItem = Extract<Item, { type: "compaction" }>;
export type ReasoningItem = Extract<Item, { type: "reasoning" }>;
export type MessageItem = Extract<Item, { type: "message" }>;
