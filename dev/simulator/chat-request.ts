import { badField, badRequest, type Finding, invalidBody } from "./errors.ts";
import { booleanField, integerField, listField, missing, objectField, stringField } from "./fields.ts";
import { isObject, type Json, type JsonObject } from "./json.ts";
import { describePicture, SEEING_MODEL } from "./pictures.ts";
import { pythonJson } from "./python-text.ts";
import {
  type AnswerFormat,
  checkLogprobs,
  maxTokensField,
  parseFormat,
  parseSampling,
  type Sampling,
} from "./sampling.ts";

const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/** A message in the form that the model sees: its parts as text. */
export type ChatMessage = {
  role: string;
  text: string;
  /** True if it has parts that only a multimodal model reads. */
  media: boolean;
  reasoning: string;
  toolCalls: { id: string; name: string; arguments: string }[];
  toolCallId: string | undefined;
};

/** A function tool. */
export type Tool = { name: string; parameters: Json; strict: boolean };

/** `named` is vLLM's word for `{"type":"function","function":{"name":…}}`. */
export type ToolChoice = { kind: "none" | "auto" | "required" } | { kind: "named"; name: string };

/** A checked chat completion request. */
export type ChatRequest = Sampling & {
  messages: ChatMessage[];
  /** The role of the answer's message. */
  role: string;
  tools: Tool[];
  toolChoice: ToolChoice;
  parallelToolCalls: boolean;
  maxTokens: number | undefined;
  /** The field that had it. */
  maxTokensName: string;
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
    ...maxTokensField(body, ["max_completion_tokens", "max_tokens"]),
    logprobs: parseLogprobs(body),
    effort: effortField(body) ?? stringField(templateArguments, "reasoning_effort"),
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
  if (messages === undefined) throw missing("body.messages", body);
  if (messages.length === 0) {
    throw badRequest("Cannot apply chat template to an empty conversation. Provide at least one message.");
  }
  return messages.map((message) => parseMessage(message, body.model === SEEING_MODEL));
}

/** Checks `tools` alone, for /tokenize. */
export function parseTools(body: JsonObject): Tool[] {
  const tools = listField(body, "tools");
  if (tools === undefined) return [];
  if (tools.length === 0) {
    throw badField(
      "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.",
      "tools",
    );
  }
  return tools.map((tool, index) => {
    const loc = `body.tools.${index}`;
    if (!isObject(tool) || tool.type !== "function") throw notAFunction(loc, tool);
    const { function: definition } = tool;
    if (!isObject(definition)) throw missing(`${loc}.function`, tool);
    if (typeof definition.name !== "string") throw missing(`${loc}.function.name`, definition);
    return {
      name: definition.name,
      parameters: definition.parameters ?? { type: "object", properties: {} },
      strict: definition.strict === true,
    };
  });
}

function notAFunction(loc: string, tool: Json): Error {
  const { type, ...rest } = isObject(tool) ? tool : {};
  const wrong: Finding = {
    type: "literal_error",
    loc: `${loc}.type`,
    msg: "Input should be 'function'",
    input: type,
    ctx: { expected: "'function'" },
  };
  const absent: Finding = { type: "missing", loc: `${loc}.function`, msg: "Field required", input: tool };
  return "function" in rest ? invalidBody(wrong) : invalidBody(wrong, absent);
}

function parseMessage(message: Json, sees: boolean): ChatMessage {
  if (!isObject(message) || typeof message.role !== "string") throw missing("body.messages.0.role", message);
  if (message.role !== "assistant" && (message.content ?? null) === null) throw badContent(null);
  return {
    role: message.role,
    text: parseContent(message.content, sees),
    media: Array.isArray(message.content) && message.content.some(isMedia),
    reasoning: stringField(message, "reasoning") ?? stringField(message, "reasoning_content") ?? "",
    toolCalls: (listField(message, "tool_calls") ?? []).map(parseToolCall),
    toolCallId: stringField(message, "tool_call_id"),
  };
}

function parseContent(content: Json | undefined, sees: boolean): string {
  if (content === undefined || content === null) return "";
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) throw badContent(content);
  return content.map((part) => (sees && pictureIn(part)) || parsePart(part)).join("\n");
}

function pictureIn(part: Json): string | undefined {
  const image = isObject(part) ? part.image_url : undefined;
  return isObject(image) && typeof image.url === "string" ? describePicture(image.url) : undefined;
}

function parsePart(part: Json): string {
  if (typeof part === "string") return part;
  if (!isObject(part)) throw badContent(part);
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
    case "file":
      throw badField(
        "Unsupported chat content part type: 'file'. Supported types: audio_embeds, audio_url, image_embeds, image_pil, image_url, input_audio, input_image, input_text, output_text, prompt_embeds, refusal, text, thinking, tool_reference, video_embeds, video_url.",
        "type",
        "file",
      );
    default:
      throw unknownPart(part);
  }
}

/** pydantic's own words: it has tried the part as each that OpenAI's client knows. */
function unknownPart(part: JsonObject): Error {
  const known = [
    ["ChatCompletionContentPartTextParam", "text", "text"],
    ["ChatCompletionContentPartImageParam", "image_url", "image_url"],
    ["ChatCompletionContentPartInputAudioParam", "input_audio", "input_audio"],
    ["File", "file", "file"],
  ] as const;
  const link = (type: string) => `\n    For further information visit https://errors.pydantic.dev/2.14/v/${type}`;
  const type = pythonRepr(part.type ?? null);
  const lines = known.flatMap(([name, field, literal]) => [
    `\n0.${name}.${field}\n  Field required [type=missing, input_value=${pythonRepr(part)}, input_type=dict]${link("missing")}`,
    `\n0.${name}.type\n  Input should be '${literal}' [type=literal_error, input_value=${type}, input_type=str]${link("literal_error")}`,
  ]);
  return badRequest(`${lines.length} validation errors for ValidatorIterator${lines.join("")}`);
}

function pythonRepr(value: Json): string {
  return pythonJson(value).replaceAll('"', "'");
}

function badContent(content: Json): Error {
  return invalidBody({
    type: "string_type",
    loc: "body.messages.0.ChatCompletionUserMessageParam.content",
    msg: "Input should be a valid string",
    input: content,
  });
}

function isMedia(part: Json): boolean {
  return isObject(part) && typeof part.type === "string" && /image|audio|video/.test(part.type);
}

function textOf(part: JsonObject, field: string): string {
  const text = part[field];
  if (typeof text !== "string") throw badContent(part);
  return text;
}

function parseToolCall(call: Json): ChatMessage["toolCalls"][number] {
  const definition = isObject(call) ? call.function : undefined;
  if (!isObject(call) || !isObject(definition) || typeof definition.name !== "string") {
    throw missing("body.messages.0.ChatCompletionAssistantMessageParam.tool_calls.0.function.name", call);
  }
  const given = definition.arguments ?? "";
  return {
    id: stringField(call, "id") ?? "",
    name: definition.name,
    arguments: typeof given === "string" ? given : JSON.stringify(given),
  };
}

function parseToolChoice(body: JsonObject, tools: Tool[]): ToolChoice {
  const choice = body.tool_choice ?? undefined;
  if (choice === "none") return { kind: "none" };
  if (choice === undefined) return { kind: tools.length > 0 ? "auto" : "none" };
  if (tools.length === 0) throw badField("When using `tool_choice`, `tools` must be set.", "tool_choice");
  if (choice === "auto" || choice === "required") return { kind: choice };
  if (!isObject(choice)) {
    throw badField(
      `Invalid value for \`tool_choice\`: ${typeof choice === "string" ? choice : pythonRepr(choice)}! Only named tools, "none", "auto" or "required" are supported.`,
      "tool_choice",
    );
  }
  const name = isObject(choice.function) ? choice.function.name : undefined;
  if (choice.type !== "function" || typeof name !== "string") {
    const given = pythonRepr(choice.function ?? null);
    throw badField(
      `Invalid value for \`function\`: \`${given === "null" ? "None" : given}\` in \`tool_choice\`! Correct usage: \`{"type": "function", "function": {"name": "my_function"}}\``,
      "tool_choice.function",
    );
  }
  if (!tools.some((tool) => tool.name === name)) {
    throw badField("The tool specified in `tool_choice` does not match any of the specified `tools`", "tool_choice");
  }
  return { kind: "named", name };
}

function effortField(body: JsonObject): string | undefined {
  const effort = stringField(body, "reasoning_effort");
  if (effort === undefined || EFFORTS.includes(effort)) return effort;
  const names = EFFORTS.map((name) => `'${name}'`);
  const expected = `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
  throw invalidBody({
    type: "literal_error",
    loc: "body.reasoning_effort",
    msg: `Input should be ${expected}`,
    input: effort,
    ctx: { expected },
  });
}

function parseLogprobs(body: JsonObject): number | undefined {
  const wanted = booleanField(body, "logprobs") ?? false;
  const top = integerField(body, "top_logprobs");
  if (top !== undefined && top > 0 && !wanted) {
    throw badField("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs");
  }
  if (top !== undefined && top < -1) {
    throw badField("`top_logprobs` must be a positive value or -1.", "top_logprobs", String(top));
  }
  checkLogprobs(top);
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
