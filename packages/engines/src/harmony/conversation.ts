import { collect, type Steps } from "@responses-edge/bounded-io/long-work";
import type { Channel, DeveloperContent, HarmonyMessage, SystemContent } from "@responses-edge/harmony";
import { dropAnalysis, standardHeader } from "@responses-edge/harmony";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { takeImages } from "@responses-edge/responses-api/hosted-tools";
import { fileText } from "@responses-edge/responses-api/items/file-text";
import type { ClientCall } from "@responses-edge/responses-api/items/item-type";
import type { InputPart } from "@responses-edge/responses-api/items/parts";
import {
  clientCallOf,
  clientOutputOf,
  type Item,
  isServerCall,
  type MessageItem,
  partsOf,
} from "@responses-edge/responses-api/items/registry";
import { ClientTools, flatName } from "@responses-edge/responses-api/tool-names";
import type { FunctionTool } from "@responses-edge/responses-api/tools";
import type { Prompt, Replay, ToolExchange, ToolNamespace } from "@responses-edge/turn/contract/engine";
import { modelItems } from "@responses-edge/turn/contract/model-items";
import type { Plugins } from "@responses-edge/turn/contract/plugin";
import { toolsOf } from "../offered-tools.ts";
import type { HarmonyConfig } from "../settings.ts";
import { FunctionNames, identifierOf, type NamedTool } from "./function-names.ts";
import { fromRawMessage } from "./raw-messages.ts";

/** A prompt as Harmony messages: the request's own instructions, tools and effort, then history and input. */

export interface Conversation {
  messages: HarmonyMessage[];
  functions: FunctionNames;
  /** The last message is an unfinished one of the assistant: the model continues it. */
  open: boolean;
}

/** Approximate microseconds for making a message. */
const UNITS_PER_MESSAGE = 3;

/**
 * Makes the messages of a prompt, in steps, in the form that `config` says. `plugins` are those whose calls may be in
 * it. Throws the 400 of content that is not text, and of a reasoning effort that Harmony does not know.
 */
export function* toConversation(prompt: Prompt, config: HarmonyConfig, plugins: Plugins): Steps<Conversation> {
  const { request } = prompt;
  const own = modelItems(prompt.items);
  const items = takeImages(request.tools) ? own.map(withImageNotes) : own;
  const clients = ClientTools.of(request.tools);
  const shown = toolsOf(prompt, "shown").functions.map(({ name }) => clients.get(name) ?? name);
  const functions = new FunctionNames([...shown, ...calledFunctions(items, plugins)], plugins.namespaces);
  const leading = items.findIndex((item) => !isInstruction(item));
  const rest = leading === -1 ? [] : items.slice(leading);
  const instructions = [
    ...(request.instructions ? [request.instructions] : []),
    ...items.slice(0, items.length - rest.length).map((item) => instructionText(item as MessageItem)),
  ];
  const all = yield* collect(toMessages(rest, prompt, functions, plugins), UNITS_PER_MESSAGE);
  const history = dropThoughts(all, prompt);
  const developer = developerContent(prompt, config.systemInstructions ? [] : instructions, functions);
  const messages: HarmonyMessage[] = [
    { role: "system", content: [systemContent(prompt, config, instructions)] },
    ...(developer ? [{ role: "developer" as const, content: [developer] }] : []),
    ...history,
  ];
  const last = items.at(-1);
  const open = last?.type === "message" && last.role === "assistant" && last.status !== "completed";
  return { messages, functions, open: open && !prompt.trailing?.length };
}

const IDENTITY = "You are ChatGPT, a large language model trained by OpenAI.";

/** vLLM's defaults: the identity that gpt-oss was trained with, all three channels. */
function systemContent(
  prompt: Prompt,
  { startDate, systemInstructions }: HarmonyConfig,
  instructions: readonly string[],
): SystemContent {
  const { request, createdAt } = prompt;
  const { namespaces } = toolsOf(prompt, "shown").plugins;
  return {
    type: "system_content",
    // The position that vLLM uses with VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS.
    model_identity: systemInstructions ? withInstructions(instructions) : IDENTITY,
    reasoning_effort: harmonyEffort(request.reasoning?.effort),
    conversation_start_date: startDate ?? new Date(createdAt).toISOString().slice(0, 10),
    knowledge_cutoff: "2024-06",
    channel_config: { valid_channels: ["analysis", "commentary", "final"], channel_required: true },
    ...(Object.keys(namespaces).length > 0 && { tools: namespaces }),
  };
}

function withInstructions(instructions: readonly string[]): string {
  return instructions.length > 0 ? `${IDENTITY}\n${instructions.join("\n\n")}` : IDENTITY;
}

/** The nearest of Harmony's three efforts. Throws the 400 of `none`: the model always reasons. */
export function harmonyEffort(effort: string | null | undefined): "Low" | "Medium" | "High" {
  switch (effort) {
    case "none":
      throw invalidRequest(
        "reasoning.effort",
        "Unsupported value: 'none' is not supported with gpt-oss. Supported values are: 'minimal', 'low', 'medium', 'high', 'xhigh' and 'max'.",
        "unsupported_value",
      );
    case "minimal":
    case "low":
      return "Low";
    case "high":
    case "xhigh":
    case "max":
      return "High";
    default:
      return "Medium";
  }
}

function developerContent(
  prompt: Prompt,
  instructions: readonly string[],
  functions: FunctionNames,
): DeveloperContent | undefined {
  const { request } = prompt;
  const { functions: tools } = toolsOf(prompt, "shown");
  const format = responseFormat(request.text?.format);
  if (instructions.length === 0 && tools.length === 0 && !format) return undefined;
  return {
    type: "developer_content",
    ...(instructions.length > 0 && { instructions: instructions.join("\n\n") }),
    ...(tools.length > 0 && { tools: toNamespaces(tools, ClientTools.of(request.tools), functions) }),
    ...(format && { response_format: format }),
  };
}

/** Functions by the namespaces in which gpt-oss sees them: the common one, and the caller's own. */
function toNamespaces(
  tools: readonly FunctionTool[],
  clients: ClientTools,
  functions: FunctionNames,
): Record<string, ToolNamespace> {
  const namespaces: Record<string, ToolNamespace> = {};
  for (const { name, description, parameters } of tools) {
    const client = clients.get(name);
    const key = functions.namespaceOf(name);
    const about = client?.namespaceDescription;
    namespaces[key] ??= { name: key, ...(about && { description: about }), tools: [] };
    // A custom tool takes the text itself.
    const argument = client?.tool.type === "custom" ? { type: "string" } : parameters;
    namespaces[key].tools.push({
      name: functions.shown(name),
      description: description ?? "",
      ...(argument !== null && { parameters: argument }),
    });
  }
  return namespaces;
}

function responseFormat(
  format: NonNullable<Prompt["request"]["text"]>["format"],
): DeveloperContent["response_format"] | undefined {
  if (!format || format.type === "text") return undefined;
  if (format.type === "json_object") return { name: "json_object", schema: { type: "object" } };
  const { name, schema, description } = format;
  return { name, schema, ...(description !== undefined && { description }) };
}

function isInstruction(item: Item): boolean {
  return item.type === "message" && (item.role === "system" || item.role === "developer");
}

function instructionText(item: MessageItem): string {
  return item.role === "assistant" ? "" : item.content.map(partText).join("\n");
}

function* calledFunctions(items: readonly Item[], plugins: Plugins): Generator<string | NamedTool> {
  for (const item of items) {
    if (item.type !== "function_call" && item.type !== "custom_tool_call") continue;
    const { name, namespace } = item;
    yield namespace === undefined ? name : { flatName: flatName(namespace, name), name, namespace };
  }
  for (const item of items) {
    const name = isServerCall(item) ? plugins.exchangeOf(item, undefined, items)?.name : undefined;
    if (name !== undefined && !plugins.isInNamespace(name)) yield name;
  }
}

/**
 * Items as messages, with raw messages in place of the items that were made from them. Items without an id (input of a
 * client that keeps everything itself) are rendered.
 */
function* toMessages(
  items: readonly Item[],
  prompt: Prompt,
  functions: FunctionNames,
  plugins: Plugins,
): Generator<HarmonyMessage> {
  const instead = new Map<string, Replay>();
  const before = new Map<string, Replay>();
  for (const replay of prompt.replays) (replay.before ? before : instead).set(replay.item, replay);
  const calls = new Map<string, { name: string; channel: Channel }>();
  for (const item of items) {
    const earlier = item.id === undefined ? undefined : before.get(item.id);
    if (earlier) yield* earlier.messages.map(fromRawMessage);
    const replay = item.id === undefined ? undefined : instead.get(item.id);
    const messages = replay?.messages.map(fromRawMessage) ?? [];
    yield* messages;
    const call = clientCallOf(item);
    if (call) calls.set(call.call_id, { name: call.flatName, channel: messages.at(-1)?.channel ?? "commentary" });
    if (messages.length > 0) continue;
    const exchange = plugins.exchangeOf(item, replay, items);
    if (exchange) yield* exchangeMessages(exchange, undefined, plugins);
    else if (call) yield callMessage(call, functions);
    else yield* toMessage(item, calls, functions);
  }
  yield* (prompt.trailing ?? []).map(fromRawMessage);
}

function* toMessage(
  item: Item,
  calls: ReadonlyMap<string, { name: string; channel: Channel }>,
  functions: FunctionNames,
): Generator<HarmonyMessage> {
  switch (item.type) {
    case "message":
      if (item.role === "user") yield { role: "user", content: text(item.content.map(partText).join("\n")) };
      else if (item.role === "assistant") yield assistantMessage(item);
      else {
        yield { role: "developer", content: [{ type: "developer_content", instructions: instructionText(item) }] };
      }
      return;
    case "reasoning": {
      const thoughts = (item.content ?? item.summary).map((part) => part.text).join("\n");
      if (thoughts !== "") yield { role: "assistant", channel: "analysis", content: text(thoughts) };
      return;
    }
    default: {
      const answer = clientOutputOf(item, (namespace, name) => functions.recipientOf(namespace, name));
      if (!answer) return;
      const { name, channel } = calls.get(answer.call_id) ?? { name: "", channel: "commentary" as const };
      const { output } = answer;
      yield {
        role: "tool",
        name: functions.recipient(name),
        recipient: "assistant",
        // The channel of the call: reasoning and the calls in it are dropped together.
        channel,
        content: text(typeof output === "string" ? output : output.map(partText).join("\n")),
      };
    }
  }
}

/** A call of the client's tool. The body of a custom tool's call is the input itself. */
function callMessage({ flatName: name, arguments: json, input }: ClientCall, functions: FunctionNames): HarmonyMessage {
  return {
    role: "assistant",
    recipient: functions.recipient(name),
    channel: "commentary",
    ...(input === undefined && { content_type: "<|constrain|>json" }),
    content: text(input ?? json),
  };
}

/** A call that this server has answered, unless the model's own message is used, and its answer on its channel. */
export function exchangeMessages(
  { name, arguments: body, output }: ToolExchange,
  made: HarmonyMessage | undefined,
  plugins: Plugins,
): HarmonyMessage[] {
  const isBuiltin = plugins.isInNamespace(name);
  const isMade = made?.recipient !== undefined;
  const call: HarmonyMessage = isMade
    ? made
    : {
        role: "assistant",
        recipient: isBuiltin ? name : `functions.${identifierOf(name)}`,
        channel: isBuiltin ? "analysis" : "commentary",
        content_type: isBuiltin ? "code" : "<|constrain|>json",
        content: text(body),
      };
  const answer: HarmonyMessage = {
    role: "tool",
    name: call.recipient ?? name,
    recipient: "assistant",
    channel: call.channel ?? "commentary",
    content: text(output),
  };
  return isMade ? [answer] : [call, answer];
}

function assistantMessage(item: Extract<MessageItem, { role: "assistant" }>): HarmonyMessage {
  const content = item.content.map((part) => (part.type === "refusal" ? part.refusal : part.text)).join("");
  const channel = item.phase === "commentary" ? "commentary" : "final";
  return { role: "assistant", channel, content: text(content) };
}

/**
 * Drops the reasoning of earlier answers, as the model was trained. `reasoning.context` may keep less (only this
 * turn's) or all of it.
 */
function dropThoughts(messages: HarmonyMessage[], { request }: Prompt): HarmonyMessage[] {
  switch (request.reasoning?.context) {
    case "all_turns":
      return messages;
    case "current_turn": {
      const turn = messages.findLastIndex((message) => message.role === "user");
      return dropAnalysis(messages.filter(({ channel }, index) => index > turn || channel !== "analysis"));
    }
    default:
      return dropAnalysis(messages);
  }
}

/**
 * A call with the header that the model itself would have written: the recipient after the channel. A prompt that
 * repeats the samples finds them in vLLM's prefix cache. openai/harmony used to write the recipient before the channel;
 * since 0.0.11 it writes calls and tools' answers in this order, too. For answers, `toolHeader` decides.
 */
export function withHeader(message: HarmonyMessage, toolHeader: HarmonyConfig["toolHeader"]): HarmonyMessage {
  const { role, recipient, header } = message;
  if (recipient === undefined || header !== undefined) return message;
  const isAsSampled = role === "assistant" || (role === "tool" && toolHeader === "channel-first");
  return isAsSampled ? { ...message, header: standardHeader(message) } : message;
}

function text(content: string): HarmonyMessage["content"] {
  return [{ type: "text", text: content }];
}

/** The text of a part. Throws the 400 of one without text: gpt-oss reads nothing else. */
function partText(part: InputPart): string {
  switch (part.type) {
    case "input_text":
      return part.text;
    case "input_file":
      return fileText(part);
    default:
      throw notText("input", part.type);
  }
}

const IMAGE_NOTE = { type: "input_text" as const, text: "[An image, which you cannot see]" };

/** An item with notes instead of its images. */
function withImageNotes(item: Item): Item {
  const { field, parts } = partsOf(item);
  if (!parts.some(({ type }) => type === "input_image")) return item;
  return { ...item, [field]: parts.map((part) => (part.type === "input_image" ? IMAGE_NOTE : part)) } as Item;
}

/** 400: content that gpt-oss cannot read, at `path`. */
export function notText(path: string, type: string) {
  return invalidRequest(
    path,
    `Content of type '${type}' is not supported by this model, which reads text only.`,
    "unsupported_content_type",
  );
}
