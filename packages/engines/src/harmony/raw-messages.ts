import type { Content, HarmonyMessage } from "@responses-edge/harmony";
import { headerFault, parseHeaderText, standardHeader } from "@responses-edge/harmony";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { RawMessage } from "@responses-edge/turn/contract/engine";
import { z } from "zod";

/**
 * Raw messages as clients see and send them: `input_messages` and `output_messages` in the form of Python's
 * `Message.to_dict`; `previous_input_messages` in that form, in vLLM's (`author` instead of role and name), or as chat
 * messages.
 */

/** A message as a client gets it: as openai/harmony's Python `to_dict` writes it, with `name` always there. */
export function toRawMessage({ role, name, content, ...rest }: HarmonyMessage): RawMessage {
  return { role, name: name ?? null, content, ...rest };
}

/** Restores a message from the form that `toRawMessage` makes. */
export function fromRawMessage(raw: RawMessage): HarmonyMessage {
  const { name, ...message } = raw as HarmonyMessage & { name?: string | null };
  return name == null ? message : { ...message, name };
}

const optionalText = z.string().nullish();
const textPart = z.object({ type: z.enum(["text", "input_text", "output_text", "reasoning_text"]), text: z.string() });
/** The current request replaces these two, so that their content does not matter. */
const replacedPart = z.looseObject({ type: z.enum(["system_content", "developer_content"]) });

const shape = z.object({
  role: optionalText,
  author: z.object({ role: z.string(), name: optionalText }).nullish(),
  name: optionalText,
  content: z.union([z.string(), z.array(z.discriminatedUnion("type", [textPart, replacedPart]))]).nullish(),
  channel: optionalText,
  recipient: optionalText,
  content_type: optionalText,
  header: optionalText,
  // Chat form.
  reasoning: optionalText,
  reasoning_content: optionalText,
  tool_call_id: optionalText,
  tool_calls: z
    .array(z.object({ id: optionalText, function: z.object({ name: z.string(), arguments: z.string() }) }))
    .nullish(),
});

type Shape = z.output<typeof shape>;

const field = z.object({ previous_input_messages: z.array(shape) });

/**
 * `previous_input_messages` as messages. System and developer messages are left out, because each request brings its
 * own. A header is kept only if it agrees with the fields. Throws the 400 that names the field at fault.
 */
export function parsePreviousMessages(messages: readonly object[]): HarmonyMessage[] {
  const { previous_input_messages: shapes } = parse(field, { previous_input_messages: messages });
  const calls = new Map<string, string>();
  return shapes.flatMap((message, index) => {
    const role = message.author?.role ?? message.role;
    if (role === "system" || role === "developer") return [];
    const messages = isChatForm(message) ? fromChat(message, calls, index) : [fromHarmony(message)];
    for (const each of messages) check(each, index);
    return messages;
  });
}

function fromHarmony(message: Shape): HarmonyMessage {
  const { channel, recipient, content_type: contentType, header } = message;
  const role = message.author?.role ?? message.role;
  const name = message.author?.name ?? message.name;
  const harmony: HarmonyMessage = {
    // Checked later, with the rest of the header.
    role: role as HarmonyMessage["role"],
    ...(name != null && { name }),
    ...(recipient != null && { recipient }),
    ...(channel != null && { channel: channel as HarmonyMessage["channel"] }),
    ...(contentType != null && { content_type: contentType }),
    content: toContent(message.content),
  };
  if (header != null && agreesWith(header, harmony)) harmony.header = header;
  return harmony;
}

/** Tells whether a header is regular and agrees with the fields, so that it can be repeated to the model. */
function agreesWith(header: string, message: HarmonyMessage): boolean {
  const parsed = parseHeaderText(header);
  return (
    parsed.clean &&
    message.role === "assistant" &&
    message.name === undefined &&
    parsed.channel === message.channel &&
    parsed.recipient === message.recipient &&
    parsed.content_type === message.content_type &&
    header !== standardHeader(message)
  );
}

/** A chat message has fields for what Harmony expresses by channels and recipients. */
function isChatForm(message: Shape): boolean {
  if (message.tool_calls?.length || message.tool_call_id != null) return true;
  return message.reasoning != null || message.reasoning_content != null || isPlainAssistant(message);
}

function isPlainAssistant({ author, role, channel, recipient }: Shape): boolean {
  return (author?.role ?? role) === "assistant" && channel == null && recipient == null;
}

function* fromChatMessage(message: Shape, calls: Map<string, string>, index: number): Generator<HarmonyMessage> {
  if ((message.author?.role ?? message.role) === "tool") {
    const name = message.name ?? message.author?.name ?? calls.get(message.tool_call_id ?? "");
    if (name == null) {
      const at = `previous_input_messages[${index}].tool_call_id`;
      throw invalidRequest(at, `No call message found for ${message.tool_call_id ?? "a tool's message"}.`);
    }
    const full = name.startsWith("functions.") ? name : `functions.${name}`;
    const content = toContent(message.content);
    yield { role: "tool", name: full, recipient: "assistant", channel: "commentary", content };
    return;
  }
  const thoughts = message.reasoning ?? message.reasoning_content;
  if (thoughts) yield { role: "assistant", channel: "analysis", content: [{ type: "text", text: thoughts }] };
  const content = toContent(message.content);
  const hasText = content.some((part) => part.type === "text" && part.text !== "");
  const hasCalls = (message.tool_calls?.length ?? 0) > 0;
  if (hasText) yield { role: "assistant", channel: hasCalls ? "commentary" : "final", content };
  for (const { id, function: called } of message.tool_calls ?? []) {
    if (id != null) calls.set(id, called.name);
    yield {
      role: "assistant",
      recipient: `functions.${called.name}`,
      channel: "commentary",
      content_type: "<|constrain|>json",
      content: [{ type: "text", text: called.arguments }],
    };
  }
}

function fromChat(message: Shape, calls: Map<string, string>, index: number): HarmonyMessage[] {
  return [...fromChatMessage(message, calls, index)];
}

function toContent(content: Shape["content"]): Content[] {
  if (content == null) return [{ type: "text", text: "" }];
  if (typeof content === "string") return [{ type: "text", text: content }];
  return content.flatMap((part) => ("text" in part ? [{ type: "text" as const, text: String(part.text) }] : []));
}

function check(message: HarmonyMessage, index: number): void {
  const fault = headerFault(message);
  if (!fault) return;
  const at = `previous_input_messages[${index}].${fault.field}`;
  throw invalidRequest(at, `Invalid value for '${at}'. ${fault.message}`, "invalid_value");
}
