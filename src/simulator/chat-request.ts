import { badRequest } from "./errors.ts";
import { booleanField, integerField, listField, objectField, stringField } from "./fields.ts";
import { isObject, type Json, type JsonObject } from "./json.ts";
import { type AnswerFormat, maxTokensField, parseFormat, parseSampling, type Sampling } from "./sampling.ts";

const MAX_LOGPROBS = 20;

/** A message as the model sees it: its parts turned into text. */
export type ChatMessage = {
  role: string;
  text: string;
  reasoning: string;
  toolCalls: { id: string; name: string; arguments: string }[];
  toolCallId: string | undefined;
};

/** A function tool. */
export type Tool = { name: string; parameters: Json };

/** `named` is vLLM's word for `{"type":"function","function":{"name":…}}`. */
export type ToolChoice = { kind: "none" | "auto" | "required" } | { kind: "named"; name: string };

/** A checked chat completion request. */
export type ChatRequest = Sampling & {
  messages: ChatMessage[];
  /** Whose message the answer is. */
  role: string;
  tools: Tool[];
  toolChoice: ToolChoice;
  parallelToolCalls: boolean;
  maxTokens: number | undefined;
  logprobs: number | undefined;
  effort: string | undefined;
  enableThinking: boolean | undefined;
  includeReasoning: boolean;
  format: AnswerFormat;
  continueFinalMessage: boolean;
  addGenerationPrompt: boolean;
};

/** Checks the body of POST /v1/chat/completions. Throws vLLM's 400s. */
export function parseChatRequest(body: JsonObject): ChatRequest {
  const messages = parseMessages(body);
  const sampling = parseSampling(body);
  const tools = parseTools(body);
  const templateArguments = objectField(body, "chat_template_kwargs") ?? {};
  const continueFinalMessage = booleanField(body, "continue_final_message") ?? false;
  const addGenerationPrompt = booleanField(body, "add_generation_prompt") ?? true;
  if (continueFinalMessage) checkContinuation(body, addGenerationPrompt);
  return {
    ...sampling,
    messages,
    role: continueFinalMessage ? (messages.at(-1)?.role ?? "assistant") : "assistant",
    tools,
    toolChoice: parseToolChoice(body, tools),
    parallelToolCalls: booleanField(body, "parallel_tool_calls") ?? true,
    maxTokens: maxTokensField(body, "max_completion_tokens") ?? maxTokensField(body, "max_tokens"),
    logprobs: parseLogprobs(body),
    effort: stringField(body, "reasoning_effort") ?? stringField(templateArguments, "reasoning_effort"),
    enableThinking: booleanField(templateArguments, "enable_thinking"),
    includeReasoning: booleanField(body, "include_reasoning") ?? true,
    format: parseFormat(body),
    continueFinalMessage,
    addGenerationPrompt,
  };
}

/** Checks `messages` alone, for /tokenize. */
export function parseMessages(body: JsonObject): ChatMessage[] {
  const messages = listField(body, "messages");
  if (messages === undefined) throw badRequest("messages: Field required", "messages");
  if (messages.length === 0) throw badRequest("messages: List should have at least 1 item", "messages");
  return messages.map(parseMessage);
}

/** Checks `tools` alone, for /tokenize. */
export function parseTools(body: JsonObject): Tool[] {
  const tools = listField(body, "tools");
  if (tools === undefined) return [];
  if (tools.length === 0) {
    throw badRequest("`tools` must not be an empty array. Either omit it or provide at least one tool.", "tools");
  }
  return tools.map((tool) => {
    if (!isObject(tool) || tool.type !== "function") throw badRequest("tools: Input should be 'function'", "tools");
    const { function: definition } = tool;
    if (!isObject(definition) || typeof definition.name !== "string") {
      throw badRequest("tools: function.name: Field required", "tools");
    }
    return { name: definition.name, parameters: definition.parameters ?? { type: "object", properties: {} } };
  });
}

function parseMessage(message: Json): ChatMessage {
  if (!isObject(message) || typeof message.role !== "string")
    throw badRequest("messages: role: Field required", "messages");
  return {
    role: message.role,
    text: parseContent(message.content),
    reasoning: stringField(message, "reasoning") ?? stringField(message, "reasoning_content") ?? "",
    toolCalls: (listField(message, "tool_calls") ?? []).map(parseToolCall),
    toolCallId: stringField(message, "tool_call_id"),
  };
}

function parseContent(content: Json | undefined): string {
  if (content === undefined || content === null) return "";
  if (typeof content === "string") return content;
  if (!Array.isArray(content))
    throw badRequest("messages: content: Input should be a valid string or list", "messages");
  return content.map(parsePart).join("\n");
}

function parsePart(part: Json): string {
  if (typeof part === "string") return part;
  if (!isObject(part)) throw badRequest("messages: content: Input should be a valid part", "messages");
  switch (part.type) {
    case "text":
    case "input_text":
    case "output_text":
      return textOf(part, "text");
    case "refusal":
      return textOf(part, "refusal");
    case "thinking":
      return textOf(part, "thinking");
    case "image_url":
    case "input_image":
    case "image_embeds":
      return "[image]";
    case "input_audio":
    case "audio_url":
      return "[audio]";
    case "video_url":
      return "[video]";
    default:
      throw badRequest(`Unknown part type: ${typeof part.type === "string" ? part.type : JSON.stringify(part.type)}`);
  }
}

function textOf(part: JsonObject, field: string): string {
  const text = part[field];
  if (typeof text !== "string")
    throw badRequest(`messages: content: ${field}: Input should be a valid string`, "messages");
  return text;
}

function parseToolCall(call: Json): ChatMessage["toolCalls"][number] {
  const definition = isObject(call) ? call.function : undefined;
  if (!isObject(call) || !isObject(definition) || typeof definition.name !== "string") {
    throw badRequest("messages: tool_calls: function.name: Field required", "messages");
  }
  const given = definition.arguments ?? "";
  // vLLM parses the arguments of earlier calls before it renders the template, and refuses what is not JSON.
  if (typeof given === "string" && given !== "") checkJson(given);
  return {
    id: stringField(call, "id") ?? "",
    name: definition.name,
    arguments: typeof given === "string" ? given : JSON.stringify(given),
  };
}

function checkJson(text: string): void {
  try {
    JSON.parse(text);
  } catch {
    throw badRequest("messages: tool_calls: function.arguments is not valid JSON", "messages");
  }
}

function parseToolChoice(body: JsonObject, tools: Tool[]): ToolChoice {
  const choice = body.tool_choice ?? undefined;
  if (choice === "none") return { kind: "none" };
  if (choice === undefined) return { kind: tools.length > 0 ? "auto" : "none" };
  if (tools.length === 0) throw badRequest("When using `tool_choice`, `tools` must be set.", "tool_choice");
  if (choice === "auto" || choice === "required") return { kind: choice };
  if (!isObject(choice)) {
    throw badRequest(
      `Invalid value for \`tool_choice\`: ${JSON.stringify(choice)}! Only named tools, "none", "auto" or "required" are supported.`,
      "tool_choice",
    );
  }
  const name = isObject(choice.function) ? choice.function.name : undefined;
  if (choice.type !== "function" || typeof name !== "string") {
    throw badRequest(
      'Invalid value for `function`! Correct usage: `{"type": "function", "function": {"name": "my_function"}}`',
      "tool_choice",
    );
  }
  if (!tools.some((tool) => tool.name === name)) {
    throw badRequest("The tool specified in `tool_choice` does not match any of the specified `tools`", "tool_choice");
  }
  return { kind: "named", name };
}

function parseLogprobs(body: JsonObject): number | undefined {
  const wanted = booleanField(body, "logprobs") ?? false;
  const top = integerField(body, "top_logprobs");
  if (top !== undefined && top > 0 && !wanted) {
    throw badRequest("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs");
  }
  if (top !== undefined && top < 0) throw badRequest("`top_logprobs` must be a positive value or -1.", "top_logprobs");
  if (top !== undefined && top > MAX_LOGPROBS) {
    throw badRequest(
      `Requested sample logprobs of ${top}, which is greater than max allowed: ${MAX_LOGPROBS}`,
      "top_logprobs",
    );
  }
  return wanted ? (top ?? 0) : undefined;
}

function checkContinuation(body: JsonObject, addGenerationPrompt: boolean): void {
  if (body.add_generation_prompt === true) {
    throw badRequest("Cannot set both `continue_final_message` and `add_generation_prompt` to True.");
  }
  // `add_generation_prompt` is true unless sent: vLLM's own check passes and the chat template's refuses.
  if (addGenerationPrompt) {
    throw badRequest(
      "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when you want the model to continue the final message, and add_generation_prompt when you want to add a header that will prompt it to start a new assistant message instead.",
    );
  }
}
