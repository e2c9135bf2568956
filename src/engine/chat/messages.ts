import type { InputPart, Item, MessageItem } from "../../protocol/items.ts";

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
  instructions: string | null;
  /** Which turns' reasoning the model gets back (`reasoning.context`); `auto` leaves it to the chat template. */
  reasoningContext: "auto" | "current_turn" | "all_turns";
  /**
   * Where system and developer messages stand that come after the beginning: in their place, or joined to the
   * first, for templates that allow only one ("System message must be at the beginning").
   */
  laterSystemMessages: "in_place" | "at_beginning";
}

/**
 * The messages of a prompt. Developer messages become system messages (few templates know the role), those at the
 * beginning are joined with the instructions to one; reasoning, text and calls of one assistant step are one message.
 */
export function toChatMessages(items: readonly Item[], options: MessageOptions): ChatMessage[] {
  const system: string[] = options.instructions ? [options.instructions] : [];
  const messages: ChatMessage[] = [];
  const reasoningFrom = options.reasoningContext === "current_turn" ? lastUserMessage(items) : 0;
  let assistant: AssistantMessage | undefined;

  const currentAssistant = (): AssistantMessage => {
    if (!assistant) {
      assistant = { role: "assistant" };
      messages.push(assistant);
    }
    return assistant;
  };

  for (const [index, item] of items.entries()) {
    switch (item.type) {
      case "message": {
        if (item.role === "assistant") {
          const before = items[index - 1];
          if (assistant?.content !== undefined && isUnfinished(before)) {
            assistant.content += assistantText(item);
            break;
          }
          // A second text without a call in between is a message of its own.
          if (assistant?.content !== undefined || assistant?.tool_calls) assistant = undefined;
          currentAssistant().content = assistantText(item);
          break;
        }
        if (item.role === "user") {
          assistant = undefined;
          messages.push({ role: "user", content: toContent(item.content) });
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
        if (assistant?.content !== undefined || assistant?.tool_calls) assistant = undefined;
        const message = currentAssistant();
        message.reasoning = message.reasoning ? `${message.reasoning}\n${text}` : text;
        message.reasoning_content = message.reasoning;
        break;
      }
      case "function_call": {
        const message = currentAssistant();
        message.tool_calls ??= [];
        message.tool_calls.push({
          id: item.call_id,
          type: "function",
          function: { name: item.name, arguments: asJson(item.arguments) },
        });
        break;
      }
      case "function_call_output":
        assistant = undefined;
        messages.push({
          role: "tool",
          tool_call_id: item.call_id,
          content: typeof item.output === "string" ? item.output : toContent(item.output),
        });
        break;
    }
  }
  if (system.length > 0) messages.unshift({ role: "system", content: system.join("\n\n") });
  return messages;
}

/** An assistant's message that was left open: the text after it belongs to it. */
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

/** One text stays a string: templates of the older kind know nothing else. */
function toContent(parts: readonly InputPart[]): string | ContentPart[] {
  const first = parts[0];
  if (first === undefined) return "";
  return parts.length === 1 && first.type === "input_text" ? first.text : parts.map(toContentPart);
}

function toContentPart(part: InputPart): ContentPart {
  switch (part.type) {
    case "input_text":
      return { type: "text", text: part.text };
    case "input_image": {
      const detail = part.detail === "original" ? "high" : part.detail;
      return { type: "image_url", image_url: { url: part.image_url, detail } };
    }
    case "input_audio":
      return { type: "input_audio", input_audio: part.input_audio };
    case "input_video":
      return { type: "video_url", video_url: { url: part.video_url } };
    case "input_file":
      return { type: "text", text: fileText(part) };
  }
}

/** A text file as text, under its name. The schema has let only base64 data URLs of text pass. */
function fileText(part: Extract<InputPart, { type: "input_file" }>): string {
  const base64 = part.file_data.slice(part.file_data.indexOf(",") + 1);
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  return `[file: ${part.filename ?? "unnamed"}]\n${new TextDecoder().decode(bytes)}`;
}

/** vLLM parses the arguments of earlier calls; what is not JSON is given as a JSON string rather than refused. */
function asJson(text: string): string {
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}
