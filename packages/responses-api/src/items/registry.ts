import { withPlainForm } from "@responses-edge/bounded-io/schemas/collections";
import type { BetaResponseItem } from "openai/resources/beta/responses/responses";
import type {
  ResponseInputItem,
  ResponseInputMessageItem,
  ResponseItem,
  ResponseOutputItem,
} from "openai/resources/responses/responses";
import { z } from "zod";
import { base62, type TurnAddress } from "../ids.ts";
import { flatName } from "../tool-names.ts";
import { applyPatchCall, applyPatchCallOutput } from "./apply-patch.ts";
import { codeInterpreterCall } from "./code-interpreter.ts";
import { compaction, compactionTrigger } from "./compaction.ts";
import { customToolCall, customToolCallOutput } from "./custom-tool-call.ts";
import { fileSearchCall } from "./file-search.ts";
import { foreign, itemReference } from "./foreign.ts";
import { functionCall, functionCallOutput } from "./function-call.ts";
import { imageGenerationCall, isImageReference } from "./image-generation.ts";
import type { ClientCall, ClientOutput, ItemKind, ItemType, NameOf } from "./item-type.ts";
import { localShellCall, localShellCallOutput } from "./local-shell.ts";
import { mcpApprovalRequest, mcpApprovalResponse, mcpCall, mcpListTools } from "./mcp.ts";
import { message, plainMessage } from "./message.ts";
import { agentMessage, multiAgentCall, multiAgentCallOutput } from "./multi-agent.ts";
import type { InputPart } from "./parts.ts";
import { program, programOutput } from "./program.ts";
import { reasoning } from "./reasoning.ts";
import { shellCall, shellCallOutput } from "./shell.ts";
import { toolSearchCall, toolSearchOutput } from "./tool-search.ts";
import { additionalTools, configurationUpdate } from "./tools-and-settings.ts";
import { webSearchCall } from "./web-search.ts";

/**
 * The item types, each with its description. The order is that of unions in the API's description. It does not compile
 * without every type that OpenAI's clients may send or expect.
 */
export const ITEMS = {
  message,
  reasoning,
  function_call: functionCall,
  function_call_output: functionCallOutput,
  custom_tool_call: customToolCall,
  custom_tool_call_output: customToolCallOutput,
  tool_search_call: toolSearchCall,
  tool_search_output: toolSearchOutput,
  local_shell_call: localShellCall,
  local_shell_call_output: localShellCallOutput,
  shell_call: shellCall,
  shell_call_output: shellCallOutput,
  apply_patch_call: applyPatchCall,
  apply_patch_call_output: applyPatchCallOutput,
  mcp_call: mcpCall,
  mcp_list_tools: mcpListTools,
  mcp_approval_request: mcpApprovalRequest,
  mcp_approval_response: mcpApprovalResponse,
  additional_tools: additionalTools,
  configuration_update: configurationUpdate,
  web_search_call: webSearchCall,
  code_interpreter_call: codeInterpreterCall,
  file_search_call: fileSearchCall,
  image_generation_call: imageGenerationCall,
  multi_agent_call: multiAgentCall,
  multi_agent_call_output: multiAgentCallOutput,
  agent_message: agentMessage,
  compaction,
  compaction_trigger: compactionTrigger,
  computer_call: foreign("cu"),
  computer_call_output: foreign("cuo"),
  program,
  program_output: programOutput,
  item_reference: itemReference,
} as const satisfies Record<OpenAIType, ItemType>;

type OpenAIType = NonNullable<ResponseInputItem["type"]> | ResponseOutputItem["type"] | AgentItem["type"];
/** The items of hosted agents. The status is this server's. */
type AgentItem =
  | (BetaResponseItem.MultiAgentCall & { status: "in_progress" | "completed" | "incomplete" | "failed" })
  | (BetaResponseItem.MultiAgentCallOutput & { response_id?: string })
  | BetaResponseItem.AgentMessage;
type Items = typeof ITEMS;
type TypeWhere<Part> = { [Type in keyof Items]: Items[Type] extends Part ? Type : never }[keyof Items];
type OfKind<Item, Kind extends ItemKind> = Extract<Item, { type: TypeWhere<{ kind: Kind }> }>;

/** The same for types that may have none. */
const DESCRIBED: { readonly [type: string]: ItemType | undefined } = ITEMS;

/** All types in their order, with some of them moved right before `mcp_call`. */
export function typesWith(...moved: (keyof Items)[]): ItemType[] {
  const names = (Object.keys(ITEMS) as (keyof Items)[]).filter((name) => !moved.includes(name));
  return names.flatMap((name) => (name === "mcp_call" ? [...moved, name] : name)).map((name) => ITEMS[name]);
}

/** Adds the `type` that easy messages and item references may leave out. An image with only an id is a reference. */
function withItemType(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (isImageReference(value)) return { ...value, type: "item_reference" };
  if (!("type" in value) || value.type == null) {
    if ("role" in value) return { ...value, type: "message" };
    if ("id" in value) return { ...value, type: "item_reference" };
  }
  return value;
}

type InputSchema = Items[keyof Items]["input"];
const inputs = new Set(typesWith("additional_tools", "configuration_update", "reasoning").map(({ input }) => input));

/** One element of `input`, in normal form. */
export const inputItem = withPlainForm(
  z.preprocess(withItemType, z.discriminatedUnion("type", [...inputs] as unknown as [InputSchema])),
  plainMessage,
);

export type InputItem = z.output<typeof inputItem>;
type ItemReference = Extract<InputItem, { type: "item_reference" }>;

/** An item with its content, for prompts and the store. */
export type Item = Exclude<InputItem, ItemReference>;
export type CompactionItem = Extract<Item, { type: "compaction" }>;
export type ReasoningItem = Extract<Item, { type: "reasoning" }>;
export type MessageItem = Extract<Item, { type: "message" }>;

/** The types of output items. */
export type OutputType = TypeWhere<{ output: unknown }>;

/** An item of `response.output`. The same object feeds the stream, the final body and the store. */
export type OutputItem = Exclude<Extract<ResponseItem, { type: OutputType }>, ResponseInputMessageItem> | AgentItem;

/** A call of a client's tool. A tool search may be this server's. */
export type ClientCallItem = OfKind<OutputItem, "call">;

/** A call of a hosted tool. */
export type ServerCall = OfKind<OutputItem, "server_call"> | Extract<OutputItem, { type: "tool_search_call" }>;

/** Tells whether an output item, or one that a client returns, is a call that the client answers. */
export function isClientCall<Item extends { type: string; execution?: unknown }>(
  item: Item | undefined,
): item is OfKind<Item, "call"> {
  return item !== undefined && DESCRIBED[item.type]?.kind === "call" && item.execution !== "server";
}

/** Tells whether an item is a call after which the model goes on: its output may come in any later response. */
export function isAsyncCall(item: { type: string }): boolean {
  return "async" in item && item.async === true;
}

/** Tells whether an output item, or one that a client returns, is a call of a tool that a server runs. */
export function isServerCall<Item extends { type: string; execution?: unknown }>(
  item: Item,
): item is Extract<Item, { type: ServerCall["type"] }> {
  const kind = DESCRIBED[item.type]?.kind;
  return kind === "server_call" || (kind === "call" && item.execution === "server");
}

/** Tells whether a call was cut off. A program is added whole, and has no status. */
export function isCutCall(call: { type: string; status?: unknown }): boolean {
  return call.status === "incomplete";
}

/** The id of the program that has made a call; undefined for a call of the model's own. */
export function programOf(item: object): string | undefined {
  const caller = "caller" in item ? (item.caller as { type: string; caller_id?: string } | null | undefined) : null;
  return caller?.type === "program" ? caller.caller_id : undefined;
}

/** Tells whether an item is a list of tools or of settings: no model reads it. */
export function isAside(item: { type: string }): boolean {
  const kind = DESCRIBED[item.type]?.kind;
  return kind === "tools" || kind === "settings";
}

const NO_WORDS: ReadonlySet<ItemKind | undefined> = new Set(["tools", "settings", "compaction"]);

/** Tells whether an item is a model's output. Lists of tools and compactions are not. */
export function isWord(item: { type: string }): boolean {
  return !NO_WORDS.has(DESCRIBED[item.type]?.kind);
}

/** Tells whether an item adds tools. */
export function bringsTools<Item extends { type: unknown }>(
  item: Item,
): item is Extract<Item, { type: TypeWhere<{ bringsTools: true }> }> {
  return DESCRIBED[String(item.type)]?.bringsTools === true;
}

/** Tells whether an item is stored: one that only refers to something else is not. */
export function isKept<Item extends { type: string }>(
  item: Item,
): item is Extract<Item, { type: TypeWhere<{ prefix: string }> }> {
  return DESCRIBED[item.type]?.prefix !== undefined;
}

/** The id of the item at `index` of a turn's input or output, by its type. */
export function itemId(type: string, { home, turn }: TurnAddress, side: "input" | "output", index: number): string {
  return `${DESCRIBED[type]?.prefix ?? "item"}_${home}${turn}${side === "input" ? "i" : "o"}${base62(index)}`;
}

/** Adds to the field of an item that the model writes. False if no event streams the item's field. */
export function appendWritten(item: OutputItem, text: string): boolean {
  const described = DESCRIBED[item.type];
  const field = described?.output && described.written;
  if (field === undefined) return false;
  const fields = item as unknown as Record<string, string | null>;
  fields[field] = (fields[field] ?? "") + text;
  return true;
}

/** The id of an item's call, if the client answers it. */
export function calledId(item: Item): string | undefined {
  return isClientCall(item) ? (item.call_id ?? undefined) : undefined;
}

/** The id of the call that an item answers, if it is the client's answer to one. */
export function answeredId(item: Item): string | undefined {
  if (DESCRIBED[item.type]?.kind !== "output" || !("call_id" in item)) return undefined;
  return "execution" in item && item.execution === "server" ? undefined : (item.call_id ?? undefined);
}

/**
 * The id by which a client answers an item: that of its own call, or of a request for its approval. The outputs of programs are
 * this server's to give.
 */
export function askedId(item: Item): string | undefined {
  if (item.type === "program") return undefined;
  return item.type === "mcp_approval_request" ? item.id : calledId(item);
}

/** The id of the call, or of the request for an approval, that an item answers, if it is the client's answer to one. */
export function repliedId(item: Item): string | undefined {
  return item.type === "mcp_approval_response" ? item.approval_request_id : answeredId(item);
}

/** The items without those of a kind, and without the client's answers to them. */
export function withoutAsked<T extends Item>(items: readonly T[], isLeftOut: (item: T) => boolean): readonly T[] {
  if (!items.some(isLeftOut)) return items;
  const asked = new Set(items.map((item) => (isLeftOut(item) ? askedId(item) : undefined)));
  asked.delete(undefined);
  return items.filter((item) => !isLeftOut(item) && !asked.has(repliedId(item)));
}

/** An item of another response, as a response shows it. A request for an approval keeps the id by which the client answers it. */
export function shownAgain(item: OutputItem, newId: (type: OutputItem["type"]) => string): OutputItem {
  return item.type === "mcp_approval_request" ? item : ({ ...item, id: newId(item.type) } as OutputItem);
}

/** The call of an item, if the client answers it. */
export function clientCallOf(item: Item): ClientCall | undefined {
  const described = DESCRIBED[item.type];
  return described?.kind === "call" ? described.called(item as never) : undefined;
}

/** The answer of an item, if it is the client's answer to a call. */
export function clientOutputOf(item: Item, nameOf: NameOf = flatName): ClientOutput | undefined {
  const described = DESCRIBED[item.type];
  return described?.kind === "output" ? described.answer(item as never, nameOf) : undefined;
}

/**
 * Tells whether items are messages with text only. Most are, and need no processing of other items and parts: no
 * look-up, no pairing of calls, no decryption, no omission.
 */
export function isTextOnly(items: readonly InputItem[]): boolean {
  for (const item of items) {
    if (item.type !== "message") return false;
    for (const { type } of item.content) if (!TEXT_PARTS.has(type)) return false;
  }
  return true;
}

const TEXT_PARTS: ReadonlySet<string> = new Set(["input_text", "output_text", "refusal"]);

/** The parts of an item that may have images, and the name of their field. */
export function partsOf(item: InputItem): { field: "content" | "output"; parts: readonly InputPart[] } {
  if (item.type === "message") return { field: "content", parts: item.content as InputPart[] };
  const isOutput = item.type === "function_call_output" || item.type === "custom_tool_call_output";
  return { field: "output", parts: isOutput && typeof item.output !== "string" ? item.output : [] };
}
