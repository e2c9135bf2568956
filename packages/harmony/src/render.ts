import { collect, finish, type Steps } from "@responses-edge/bounded-io/long-work";
import type { Content, DeveloperContent, HarmonyMessage, Role, SystemContent, ToolNamespace } from "./message.ts";
import { normaliseSchema } from "./schema-normalisation.ts";
import type { Segment } from "./segments.ts";
import { compactJson, toolsBlock } from "./tools-block.ts";
import { CALL, CHANNEL, CONSTRAIN, END, MESSAGE, SPECIAL_TOKENS, START } from "./vocabulary.ts";

/**
 * Messages in the form of gpt-oss's training, segment by segment as openai/harmony renders them (`src/encoding.rs`), so
 * that the token ids are equal as well. It drops nothing, as analysis.ts does.
 */

export interface RenderOptions {
  /**
   * True if schemas are first rewritten so that the model sees more of their types (schema-normalisation.ts). Default
   * true; openai/harmony does not.
   */
  normaliseSchemas?: boolean;
}

export interface MessageRenderOptions extends RenderOptions {
  /** True if some message of the conversation declares functions, which the system message then mentions. */
  hasFunctionTools?: boolean;
}

/** A conversation and the beginning of the assistant's next message. Throws like `renderMessage`. */
export function renderConversation(messages: readonly HarmonyMessage[], options: RenderOptions = {}): Segment[] {
  return finish(renderingConversation(messages, options));
}

/** A message has about five segments. */
const UNITS_PER_SEGMENT = 0.6;

/** The same in steps. */
export function* renderingConversation(
  messages: readonly HarmonyMessage[],
  options: RenderOptions = {},
): Steps<Segment[]> {
  const messageOptions = { ...options, hasFunctionTools: hasFunctionTools(messages) };
  const rendered = messages.values().flatMap((message) => renderMessage(message, messageOptions));
  const segments = yield* collect(rendered, UNITS_PER_SEGMENT);
  segments.push(START, "assistant");
  return segments;
}

/**
 * One message, with `message.header` as its header if that is present. Header fields are not checked: see
 * validation.ts. Throws, as the reference does, for a tool's message without its name, and for system or developer
 * content in messages of another role.
 */
export function renderMessage(message: HarmonyMessage, options: MessageRenderOptions = {}): Segment[] {
  const header = message.header === undefined ? fieldSegments(message) : headerSegments(message.header);
  const content = message.content.map((part) => contentText(part, message.role, options));
  const isCall = message.role === "assistant" && message.recipient !== undefined;
  return [START, ...header, MESSAGE, ...content, isCall ? CALL : END];
}

/** A header as the model wrote it: `<|channel|>` and `<|constrain|>` are special tokens, anything else is text. */
export function headerSegments(header: string): Segment[] {
  return header
    .split(/(<\|channel\|>|<\|constrain\|>)/)
    .filter((part) => part !== "")
    .map((part) => (part === "<|channel|>" || part === "<|constrain|>" ? SPECIAL_TOKENS[part] : part));
}

function fieldSegments({ role, name, recipient, channel, content_type }: HarmonyMessage): Segment[] {
  const segments: Segment[] = [];
  if (role !== "tool") segments.push(role);
  else if (name === undefined) throw new Error("A tool's message needs the tool's name.");
  else segments.push(name);
  if (role !== "tool" && name !== undefined) segments.push(`:${name}`);
  if (recipient !== undefined && recipient !== "all") segments.push(` to=${recipient}`);
  if (channel !== undefined) segments.push(CHANNEL, channel);
  if (content_type?.startsWith("<|constrain|>")) {
    segments.push(" ", CONSTRAIN, content_type.slice("<|constrain|>".length));
  } else if (content_type !== undefined) {
    segments.push(` ${content_type}`);
  }
  return segments;
}

function contentText(content: Content, role: Role, options: MessageRenderOptions): string {
  switch (content.type) {
    case "text":
      return content.text;
    case "system_content":
      if (role !== "system") throw new Error(`System content in a message of role ${role}.`);
      return systemText(content, options);
    case "developer_content":
      if (role !== "developer") throw new Error(`Developer content in a message of role ${role}.`);
      return developerText(content, options);
  }
}

function hasFunctionTools(messages: readonly HarmonyMessage[]): boolean {
  return messages.some(({ content }) =>
    content.some(
      (part) => part.type === "developer_content" && (namespace(part.tools, "functions")?.tools.length ?? 0) > 0,
    ),
  );
}

function namespace(tools: Record<string, ToolNamespace> | undefined, key: string): ToolNamespace | undefined {
  return tools !== undefined && Object.hasOwn(tools, key) ? tools[key] : undefined;
}

function systemText(system: SystemContent, options: MessageRenderOptions): string {
  const { model_identity, knowledge_cutoff, conversation_start_date, reasoning_effort, channel_config } = system;
  const about: string[] = [];
  if (model_identity !== undefined) about.push(model_identity);
  if (knowledge_cutoff !== undefined) about.push(`Knowledge cutoff: ${knowledge_cutoff}`);
  if (conversation_start_date !== undefined) about.push(`Current date: ${conversation_start_date}`);
  const sections: string[] = [];
  if (about.length > 0) sections.push(about.join("\n"));
  if (reasoning_effort !== undefined) sections.push(`Reasoning: ${reasoning_effort.toLowerCase()}`);
  sections.push(...toolSections(system.tools, options));
  if (channel_config !== undefined && channel_config.valid_channels.length > 0) {
    let channels = `# Valid channels: ${channel_config.valid_channels.join(", ")}.`;
    if (channel_config.channel_required) channels += " Channel must be included for every message.";
    if (options.hasFunctionTools) {
      channels += "\nCalls to these tools must go to the commentary channel: 'functions'.";
    }
    sections.push(channels);
  }
  return sections.join("\n\n");
}

function developerText({ instructions, tools, response_format }: DeveloperContent, options: RenderOptions): string {
  const sections: string[] = [];
  if (instructions !== undefined) sections.push("# Instructions", instructions);
  sections.push(...toolSections(tools, options));
  if (response_format !== undefined) sections.push(responseFormatText(response_format));
  return sections.join("\n\n");
}

/** From the Harmony guide ("Structured output"); the library has no such section. */
function responseFormatText({ name, description, schema }: NonNullable<DeveloperContent["response_format"]>): string {
  const about = description === undefined ? "" : `// ${description.split(/\r\n?|\n/).join("\n// ")}\n`;
  return `# Response Formats\n\n## ${name}\n\n${about}${compactJson(schema)}`;
}

function toolSections(tools: Record<string, ToolNamespace> | undefined, options: RenderOptions): string[] {
  if (tools === undefined || Object.keys(tools).length === 0) return [];
  return [toolsBlock(options.normaliseSchemas === false ? tools : normalised(tools))];
}

function normalised(tools: Record<string, ToolNamespace>): Record<string, ToolNamespace> {
  const entries = Object.entries(tools).map(([key, namespace]) => {
    const described = namespace.tools.map((tool) => ({ ...tool, parameters: normaliseSchema(tool.parameters) }));
    return [key, { ...namespace, tools: described }] as const;
  });
  return Object.fromEntries(entries);
}
