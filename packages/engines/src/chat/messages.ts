import { finish, type Steps } from "@responses-edge/bounded-io/long-work";
import { fileParts, fileText } from "@responses-edge/responses-api/items/file-text";
import type { InputPart } from "@responses-edge/responses-api/items/parts";
import {
  calledId,
  clientCallOf,
  clientOutputOf,
  type Item,
  isClientCall,
  isWord,
  partsOf as itemParts,
  type MessageItem,
} from "@responses-edge/responses-api/items/registry";
import { parseArguments } from "@responses-edge/responses-api/json";
import type { Replay, ToolExchange } from "@responses-edge/turn/contract/engine";
import { modelItems } from "@responses-edge/turn/contract/model-items";
import type { Plugins } from "@responses-edge/turn/contract/plugin";

/** Items as vLLM's chat completions messages. */

type ContentPart =
  | { type: "text"; text: string }
  | { type: "image_url"; image_url: { url: string; detail?: string } }
  | { type: "input_audio"; input_audio: { data: string; format: string } }
  | { type: "video_url"; video_url: { url: string } };

interface ToolCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

export type ChatMessage =
  | { role: "system" | "user"; content: string | ContentPart[] }
  | { role: "tool"; tool_call_id: string; content: string | ContentPart[] }
  | {
      role: "assistant";
      content?: string;
      /** vLLM ≥ 0.16 reads `reasoning`, earlier versions `reasoning_content`. */
      reasoning?: string;
      reasoning_content?: string;
      tool_calls?: ToolCall[];
    };

type AssistantMessage = Extract<ChatMessage, { role: "assistant" }>;

export interface MessageOptions {
  /** The stored calls that this server has answered. */
  replays: readonly Replay[];
  plugins: Plugins;
  instructions: string | null;
  /** The turns whose reasoning the model gets back (`reasoning.context`); `auto` leaves it to the chat template. */
  reasoningContext: "auto" | "current_turn" | "all_turns";
  /**
   * The position of later system and developer messages: in place, or joined to the first, for templates that allow
   * only one ("System message must be at the beginning"). Such templates may also require alternating roles:
   * consecutive user messages are then joined.
   */
  laterSystemMessages: "in_place" | "at_beginning";
  /** True for a model that sees: it is given the pictures of files' pages. */
  seesImages?: boolean | undefined;
}

/**
 * The messages of a prompt. Developer messages become system messages (few templates know the role), those at the
 * beginning are joined with the instructions to one; reasoning, text and calls of one assistant step are one message.
 */
export function toChatMessages(items: readonly Item[], options: MessageOptions): ChatMessage[] {
  return finish(chatMessages(items, options));
}

/** Items between two steps, and the approximate microseconds for each. */
const ITEMS_PER_STEP = 100;
const UNITS_PER_ITEM = 15;

/** The same in steps. */
export function* chatMessages(given: readonly Item[], options: MessageOptions): Steps<ChatMessage[]> {
  const items = modelItems(given);
  const system: string[] = options.instructions ? [options.instructions] : [];
  const messages: ChatMessage[] = [];
  const reasoningFrom = options.reasoningContext === "current_turn" ? lastUserMessage(items) : 0;
  let assistant: AssistantMessage | undefined;
  const replays = new Map<string, Replay>();
  for (const replay of options.replays) replays.set(replay.item, replay);
  /** The assistant's message with calls that the client answers later; it stays open until then. */
  let unanswered: AssistantMessage | undefined;
  /** Answers to calls of the current assistant's message, which they follow. */
  let answers: ChatMessage[] = [];
  let step: string | undefined;
  /** The ids of the client's calls, if another call needs an unused id. */
  let clientCalls: ReadonlySet<string | undefined> | undefined;

  const endStep = (): void => {
    messages.push(...answers);
    if (answers.length > 0) assistant = undefined;
    answers = [];
    step = undefined;
  };

  const currentAssistant = (): AssistantMessage => {
    if (!assistant) {
      assistant = { role: "assistant" };
      messages.push(assistant);
    }
    return assistant;
  };

  const { plugins, seesImages } = options;
  const waitsForClient = (): boolean => assistant !== undefined && assistant === unanswered;

  /** The step of the next call that this server has answered, if only the client's calls come before it. */
  let next = 0;
  const nextStep = (from: number): string | undefined => {
    next = Math.max(next, from);
    while (isClientCall(items[next])) next += 1;
    const item = items[next];
    return item && plugins.exchangeOf(item, replays.get(item.id ?? ""), items)?.step;
  };

  for (const [index, item] of items.entries()) {
    if (index % ITEMS_PER_STEP === ITEMS_PER_STEP - 1) yield ITEMS_PER_STEP * UNITS_PER_ITEM;
    const isNoCall = item.type === "message" || !isWord(item);
    const exchange = isNoCall ? undefined : plugins.exchangeOf(item, replays.get(item.id ?? ""), items);
    if (exchange) {
      clientCalls ??= new Set(items.map(calledId));
      if (step !== undefined && step !== exchange.step && !waitsForClient()) endStep();
      step = exchange.step;
      const id = callIdOf(index, clientCalls);
      const calls = callsOf(currentAssistant());
      const { name, arguments: json } = plugins.toFunctionCall(exchange);
      calls.push({ id, type: "function", function: { name, arguments: argumentsObject(json) } });
      answers.push({ role: "tool", tool_call_id: id, content: outputOf(exchange, seesImages) });
      continue;
    }
    const call = isNoCall ? undefined : clientCallOf(item);
    if (call) {
      // Only a turn's last round has such calls: earlier calls of another round are not parallel to them.
      const following = step === undefined || waitsForClient() ? undefined : nextStep(index);
      if (following !== undefined && following !== step) endStep();
      const message = currentAssistant();
      const { flatName: name, arguments: json } = call;
      callsOf(message).push({
        id: call.call_id,
        type: "function",
        function: { name, arguments: argumentsObject(json) },
      });
      unanswered = message;
      continue;
    }
    if (step !== undefined) endStep();
    const answer = isNoCall ? undefined : clientOutputOf(item);
    if (answer) {
      assistant = undefined;
      const content = typeof answer.output === "string" ? answer.output : toContent(answer.output, seesImages);
      messages.push({ role: "tool", tool_call_id: answer.call_id, content });
      continue;
    }
    switch (item.type) {
      case "message": {
        if (item.role === "assistant") {
          const before = items[index - 1];
          if (assistant?.content !== undefined && isUnfinished(before)) {
            assistant.content += assistantText(item);
            break;
          }
          // A second text without a call in between is a separate message.
          if (assistant?.content !== undefined || assistant?.tool_calls) assistant = undefined;
          const text = assistantText(item);
          // Templates add their own gap after reasoning.
          currentAssistant().content = before?.type === "reasoning" ? text.replace(/^\n+/, "") : text;
          break;
        }
        if (item.role === "user") {
          assistant = undefined;
          messages.push({ role: "user", content: toContent(item.content, seesImages) });
          break;
        }
        const text = plainText(item.content);
        if (messages.length === 0 || options.laterSystemMessages === "at_beginning") system.push(text);
        else {
          assistant = undefined;
          messages.push({ role: "system", content: text });
        }
        break;
      }
      case "reasoning": {
        const text = (item.content ?? item.summary).map((part) => part.text).join("\n");
        if (text === "" || index < reasoningFrom) break;
        // A thought that broke off was begun anew in the next item.
        if (item.status === "incomplete" && items[index + 1]?.type === "reasoning") break;
        if (assistant?.content !== undefined || assistant?.tool_calls) assistant = undefined;
        const message = currentAssistant();
        message.reasoning = message.reasoning ? `${message.reasoning}\n${text}` : text;
        message.reasoning_content = message.reasoning;
        break;
      }
    }
  }
  if (step !== undefined) endStep();
  if (system.length > 0) messages.unshift({ role: "system", content: system.join("\n\n") });
  return options.laterSystemMessages === "at_beginning" ? withUsersJoined(messages) : messages;
}

/** The calls of an assistant's message. Templates add their own gap between its text and them. */
function callsOf(message: AssistantMessage): ToolCall[] {
  if (message.tool_calls) return message.tool_calls;
  const text = message.content?.trimEnd();
  if (text) message.content = text;
  else delete message.content;
  message.tool_calls = [];
  return message.tool_calls;
}

function withUsersJoined(messages: readonly ChatMessage[]): ChatMessage[] {
  const joined: ChatMessage[] = [];
  for (const message of messages) {
    const last = joined.at(-1);
    if (message.role !== "user" || last?.role !== "user") joined.push({ ...message });
    else if (typeof last.content === "string" && typeof message.content === "string") {
      last.content += `\n\n${message.content}`;
    } else last.content = [...partsOf(last.content), ...partsOf(message.content)];
  }
  return joined;
}

function partsOf(content: string | ContentPart[]): ContentPart[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : content;
}

/** An id for a call without one: the same in every turn, and unique. */
function callIdOf(index: number, taken: ReadonlySet<string | undefined>): string {
  let id = `call_${index}`;
  while (taken.has(id)) id += "_";
  return id;
}

/** An assistant's message that was left open: the next text belongs to it. */
export function isUnfinished(item: Item | undefined): boolean {
  return item?.type === "message" && item.role === "assistant" && item.status !== "completed";
}

function lastUserMessage(items: readonly Item[]): number {
  return items.findLastIndex((item) => item.type === "message" && item.role === "user");
}

function assistantText(item: Extract<MessageItem, { role: "assistant" }>): string {
  return item.content.map((part) => (part.type === "refusal" ? part.refusal : part.text)).join("");
}

function plainText(parts: readonly InputPart[]): string {
  return parts.map((part) => (part.type === "input_text" ? part.text : "")).join("\n");
}

/** Tells whether an item has files with pictures of their pages. */
export function hasPictures(item: Item): boolean {
  return itemParts(item).parts.some((part) => part.type === "input_file" && part.file_pictures !== undefined);
}

/** A single text stays a string: older templates support nothing else. */
function toContent(parts: readonly InputPart[], seesImages = false): string | ContentPart[] {
  const first = parts[0];
  if (first === undefined) return "";
  return parts.length === 1 && first.type === "input_text"
    ? first.text
    : parts.flatMap((part) => toContentParts(part, seesImages));
}

function toContentParts(part: InputPart, seesImages: boolean): ContentPart | ContentPart[] {
  switch (part.type) {
    case "input_text":
      return { type: "text", text: part.text };
    case "input_image": {
      const detail = part.detail === "original" ? "high" : part.detail;
      return { type: "image_url", image_url: { url: part.file_content ?? part.image_url ?? "", detail } };
    }
    case "input_audio":
      return { type: "input_audio", input_audio: part.input_audio };
    case "input_video":
      return { type: "video_url", video_url: { url: part.video_url } };
    case "input_file":
      if (!seesImages || !part.file_pictures) return { type: "text", text: fileText(part) };
      return fileParts(part).map((piece) =>
        "text" in piece ? { type: "text", ...piece } : { type: "image_url", image_url: { url: piece.picture } },
      );
  }
}

/** The output of a call that this server has answered: with its images for a model that sees. */
function outputOf({ output, images = [] }: ToolExchange, seesImages = false): string | ContentPart[] {
  if (!seesImages || images.length === 0) return output;
  return [{ type: "text", text: output }, ...images.map((url) => ({ type: "image_url" as const, image_url: { url } }))];
}

/** The name under which a template finds arguments that are no JSON object. */
const UNREADABLE = "unreadable_arguments";

/**
 * The arguments of an earlier call as a JSON object: servers parse them, and templates read their members. A text that is no
 * object, such as arguments that were cut off, is a member of one.
 */
export function argumentsObject(text: string): string {
  if (text.trim() === "") return "{}";
  return parseArguments(text) ? text : JSON.stringify({ [UNREADABLE]: text });
}
