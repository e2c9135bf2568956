import { z } from "zod";
import { list } from "./collections.ts";
import { MAX_ID_LENGTH } from "./ids.ts";

/**
 * Input items as clients send them, and the normal form in which the rest of the code knows them.
 *
 * Every schema tolerates unknown keys (they are dropped) and gives the normal form: messages always have
 * `type: "message"` and an array of parts. What this server cannot carry to a model is refused here, by path.
 */

/** OpenAI's limit on one text, in characters. */
const MAX_TEXT_LENGTH = 10_485_760;

/** The same of `encrypted_content`. */
export const MAX_SEALED_LENGTH = 20_971_520;

const text = z.string().max(MAX_TEXT_LENGTH);
const itemId = z.string().min(1).max(MAX_ID_LENGTH).nullish();
const callId = z.string().min(1).max(MAX_ID_LENGTH);
const itemStatus = z.enum(["in_progress", "completed", "incomplete"]).nullish();

/** Raises the issue that `field` (a path below the value) is known and not served here. */
function notServed(context: z.RefinementCtx, path: (string | number)[], what: string): void {
  context.addIssue({
    code: "custom",
    path,
    message: `${what} is not supported by this server.`,
    params: { code: "unsupported_parameter" },
  });
}

const inputText = z.object({ type: z.literal("input_text"), text });

const inputImage = z
  .object({
    type: z.literal("input_image"),
    image_url: z.string().nullish(),
    file_id: z.string().nullish(),
    detail: z.enum(["low", "high", "auto", "original"]).nullish(),
  })
  .transform((part, context) => {
    if (part.file_id != null) notServed(context, ["file_id"], "An image by 'file_id'");
    else if (part.image_url == null || !/^(https?:\/\/|data:image\/)/i.test(part.image_url)) {
      context.addIssue({
        code: "custom",
        path: ["image_url"],
        message: "Expected an http(s) URL, or a base64 data URL with an image media type (data:image/…;base64,…).",
      });
    }
    return { type: part.type, image_url: part.image_url ?? "", detail: part.detail ?? "auto" };
  });

/** Media types of a file that can be given to a chat model as text. */
const TEXT_FILE =
  /^data:(text\/[\w.+-]+|application\/(json|xml|yaml|x-yaml|javascript|x-ndjson))(;charset=[\w-]+)?;base64,/i;

/** Only so much of a data URL is looked at for its type: a pattern keeps a state for every character that it tries. */
const MAX_MEDIA_TYPE_LENGTH = 256;

function isBase64(text: string): boolean {
  try {
    atob(text);
    return true;
  } catch {
    return false;
  }
}

const inputFile = z
  .object({
    type: z.literal("input_file"),
    file_data: z.string().nullish(),
    file_id: z.string().nullish(),
    file_url: z.string().nullish(),
    filename: z.string().nullish(),
  })
  .transform((part, context) => {
    if (part.file_id != null) notServed(context, ["file_id"], "A file by 'file_id'");
    else if (part.file_url != null) notServed(context, ["file_url"], "A file by 'file_url'");
    else if (part.file_data == null) {
      context.addIssue({
        code: "custom",
        path: ["file_data"],
        message: "Missing required parameter: 'file_data'.",
        params: { code: "missing_required_parameter" },
      });
    } else if (!TEXT_FILE.test(part.file_data.slice(0, MAX_MEDIA_TYPE_LENGTH))) {
      notServed(context, ["file_data"], "A file that is not text (data:text/…;base64,… or application/json)");
    } else if (!isBase64(part.file_data.slice(part.file_data.indexOf(",") + 1))) {
      context.addIssue({ code: "custom", path: ["file_data"], message: "Invalid base64 in 'file_data'." });
    }
    return {
      type: part.type,
      file_data: part.file_data ?? "",
      ...(part.filename != null && { filename: part.filename }),
    };
  });

const inputAudio = z.object({
  type: z.literal("input_audio"),
  input_audio: z.object({ data: z.string().min(1), format: z.enum(["mp3", "wav"]) }),
});

const inputVideo = z.object({ type: z.literal("input_video"), video_url: z.string().min(1) });

const inputPart = z.discriminatedUnion("type", [inputText, inputImage, inputFile, inputAudio, inputVideo]);

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

const functionCall = z
  .object({
    type: z.literal("function_call"),
    call_id: callId,
    name: z.string().min(1).max(128),
    arguments: text,
    id: itemId,
    status: itemStatus,
  })
  .transform((call) => ({
    type: call.type,
    ...(call.id != null && { id: call.id }),
    call_id: call.call_id,
    name: call.name,
    arguments: call.arguments,
    status: call.status ?? ("completed" as const),
  }));

const functionCallOutput = z
  .object({
    type: z.literal("function_call_output"),
    call_id: callId,
    output: z.union([text, list(inputPart)]),
    id: itemId,
    status: itemStatus,
  })
  .transform((output) => ({
    type: output.type,
    ...(output.id != null && { id: output.id }),
    call_id: output.call_id,
    output: output.output,
    status: "completed" as const,
  }));

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

function withId(id: string | null | undefined): { id?: string } {
  return id == null ? {} : { id };
}

const itemReference = z.object({ type: z.literal("item_reference"), id: z.string().min(1).max(MAX_ID_LENGTH) });

/** Item types of OpenAI's API whose tools this server does not have; named so that the refusal can be clear. */
const UNSERVED_ITEM_TYPES = new Set([
  "additional_tools",
  "apply_patch_call",
  "apply_patch_call_output",
  "compaction",
  "compaction_trigger",
  "computer_call",
  "computer_call_output",
  "configuration_update",
  "custom_tool_call",
  "custom_tool_call_output",
  "file_search_call",
  "image_generation_call",
  "local_shell_call",
  "local_shell_call_output",
  "program",
  "program_output",
  "shell_call",
  "shell_call_output",
  "tool_search_call",
  "tool_search_output",
]);

/** Fills in the `type` that easy messages and item references may leave out, and refuses unserved types. */
function withItemType(value: unknown, context: z.RefinementCtx): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (!("type" in value) || value.type == null) {
    if ("role" in value) return { ...value, type: "message" };
    if ("id" in value) return { ...value, type: "item_reference" };
  } else if (typeof value.type === "string" && UNSERVED_ITEM_TYPES.has(value.type)) {
    notServed(context, ["type"], `Input of type '${value.type}'`);
    return z.NEVER;
  }
  return value;
}

/** One element of `input`, in normal form. */
export const inputItem = z.preprocess(
  withItemType,
  z.discriminatedUnion("type", [
    message,
    functionCall,
    functionCallOutput,
    reasoning,
    mcpCall,
    mcpListTools,
    mcpApprovalRequest,
    mcpApprovalResponse,
    webSearchCall,
    codeInterpreterCall,
    itemReference,
  ]),
);

export type InputPart = z.output<typeof inputPart>;
export type OutputTextPart = { type: "output_text"; text: string; annotations: unknown[]; logprobs: unknown[] };
export type InputItem = z.output<typeof inputItem>;
export type ItemReference = z.output<typeof itemReference>;

/** An item whose content is here: what a prompt is built from and what the store keeps. */
export type Item = Exclude<InputItem, ItemReference>;
export type ReasoningItem = Extract<Item, { type: "reasoning" }>;
export type MessageItem = Extract<Item, { type: "message" }>;
