import type { InputPart } from "@responses-edge/responses-api/items/parts";
import {
  answeredId,
  calledId,
  type Item,
  isAside,
  type MessageItem,
} from "@responses-edge/responses-api/items/registry";
import { isInstruction, SUMMARY_ID, textOf } from "./compacted-past.ts";
import type { Replay } from "./contract/engine.ts";
import type { CompactionContent } from "./sealed-content/sealing.ts";

/**
 * Selects the items that a compaction keeps, and those that its summary replaces. All lengths are characters of text,
 * which are about proportional to tokens.
 */

interface SelectionOptions {
  /** The longest total of the user's messages, and of instructions after the first ones. */
  keptLength: number;
  /** The longest total of unanswered messages at the end; 0 if they count as earlier ones. */
  tailLength: number;
  /** The raw messages behind the items. A hosted tool's answer may be only there. */
  replays?: readonly Replay[];
}

export interface Selection extends Omit<CompactionContent, "summary"> {
  /** The length of the items that the summary replaces, without earlier summaries. */
  replacedLength: number;
}

/** The shortest useful piece of a message. */
const MIN_PIECE_LENGTH = 64;

/** The longest total of tools and settings, as JSON. */
const MAX_ASIDES_LENGTH = 1024 * 1024;

/**
 * Chooses among the items of a prompt, oldest first; `lists` are lists of tools that the turn has made since.
 *
 * Instructions at the beginning stay, and so do the user's messages and later instructions, newest first, up to
 * `keptLength`; the one that exceeds it is cut in its middle. Unanswered items come after the summary: messages at the
 * end, open calls, and requested approvals. Listed or loaded tools, and settings, stay. Everything else is replaced,
 * calls together with their outputs.
 */
export function selectKept(items: readonly Item[], lists: readonly Item[], options: SelectionOptions): Selection {
  const tailStart =
    options.tailLength > 0 ? items.findLastIndex((item) => !isSaid(item) && !isAside(item)) + 1 : items.length;
  const leading = items.findIndex((item) => !isInstruction(item));
  const first = items.slice(0, leading === -1 ? items.length : leading);
  const middle = items.slice(first.length, Math.max(first.length, tailStart));
  const tail = items.slice(Math.max(first.length, tailStart)).filter(isSaid);
  const kept = newestWithin(middle.filter(isSaid), options.keptLength);
  const keptTail = tail.map(withoutId);
  const isTailShort = lengthOf(tail) <= options.tailLength;
  const endings = isTailShort ? keptTail : newestWithin(tail, options.tailLength);
  const open = openItems(items);
  const isOpen = new Set(open);
  const isNotSeen = (item: Item) => isAside(item) || item.id === SUMMARY_ID || isOpen.has(item);
  const gone = middle.filter((item) => !isNotSeen(item));
  return {
    before: [...first.map(withoutId), ...asides([...items, ...lists]), ...kept],
    after: [...open, ...endings],
    replacedLength:
      Math.max(0, promptLength(gone, options.replays ?? []) - lengthOf(kept)) +
      Math.max(0, lengthOf(tail) - lengthOf(endings)),
  };
}

/** Tells whether an item is a message to the model rather than by it, and no summary. */
function isSaid(item: Item): boolean {
  return item.type === "message" && item.role !== "assistant" && item.id !== SUMMARY_ID;
}

/**
 * Messages, oldest first: the newest that fit, and the next one cut in its middle. Repeated instructions are left out.
 */
function newestWithin(messages: readonly Item[], maxLength: number): Item[] {
  const kept: Item[] = [];
  const instructions = new Set<string>();
  let left = maxLength;
  for (const message of messages.toReversed()) {
    const text = textOf(message);
    if (isInstruction(message) && instructions.has(text)) continue;
    if (isInstruction(message)) instructions.add(text);
    if (left < MIN_PIECE_LENGTH) break;
    const fitting = asText(message, left);
    kept.push(fitting);
    left -= lengthOf([fitting]);
  }
  return kept.reverse();
}

/** A message of at most about `maxLength` characters, with notes instead of content that is not text. */
function asText(item: Item, maxLength: number): Item {
  if (item.type !== "message" || item.role === "assistant") return item;
  const isPlain = item.content.every((part) => part.type === "input_text" || part.type === "input_file");
  if (isPlain && lengthOf([item]) <= maxLength)
    return withoutId({ ...item, content: item.content.map(withoutPictures) });
  const text = cutInMiddle(item.content.map(noteOfPart).join("\n"), maxLength);
  return { type: "message", role: item.role, status: "completed", content: [{ type: "input_text", text }] };
}

/** A file without the pictures of its pages: as with images, only their text is kept. */
function withoutPictures(part: InputPart): InputPart {
  if (part.type !== "input_file" || !part.file_pictures) return part;
  const { file_pictures: _, ...file } = part;
  return file;
}

function noteOfPart(part: InputPart): string {
  switch (part.type) {
    case "input_text":
      return part.text;
    case "input_file":
      return `[file${part.filename === undefined ? "" : ` ${part.filename}`}]`;
    case "input_image":
      return "[image]";
    case "input_audio":
      return "[audio]";
    case "input_video":
      return "[video]";
  }
}

/** A text without its middle, if it is longer than `maxLength`. */
export function cutInMiddle(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const half = Math.max(0, Math.floor(maxLength / 2));
  const left = text.length - 2 * half;
  // Halves of a surrogate pair are not valid text.
  return `${text.slice(0, half)}\n[… ${left} characters left out …]\n${text.slice(text.length - half)}`.toWellFormed();
}

/** Without its id, no raw message replaces it or comes before it. */
function withoutId(item: Item): Item {
  if (item.type !== "message") return item;
  const { id: _, ...message } = item;
  return message as MessageItem;
}

/** Calls without an output, and approvals that were requested, or given for calls that have not been made. */
function openItems(items: readonly Item[]): Item[] {
  const answered = answeredCalls(items);
  const closed = new Set<string | null>();
  for (const item of items) {
    if (item.type === "mcp_call") closed.add(item.approval_request_id);
    else if (item.type === "mcp_approval_response" && !item.approve) closed.add(item.approval_request_id);
  }
  return items.filter((item) => {
    if (item.type === "mcp_approval_request") return item.id !== undefined && !closed.has(item.id);
    if (item.type === "mcp_approval_response") return !closed.has(item.approval_request_id);
    const id = calledId(item);
    return id !== undefined && !answered.has(id) && !("status" in item && item.status === "incomplete");
  });
}

/** The ids of calls that have their outputs. */
export function answeredCalls(items: readonly Item[]): Set<string> {
  return new Set(items.flatMap((item) => answeredId(item) ?? []));
}

/**
 * Items that no model reads, but later turns need: the newest list of each MCP server's tools, loaded tools, and
 * settings. An item that is too large is left out: its tools are listed, or found, again.
 */
function asides(items: readonly Item[]): Item[] {
  const lists = new Map<string, Item>();
  const brought: Item[] = [];
  for (const item of items) {
    if (item.type === "mcp_list_tools" && item.error == null) {
      lists.delete(item.server_label);
      lists.set(item.server_label, item);
    } else if (item.type === "additional_tools") brought.push(item);
    else if (item.type === "tool_search_output") {
      brought.push({ type: "additional_tools", role: "developer", tools: item.tools });
    }
  }
  const updates = items.filter((item) => item.type === "configuration_update");
  const effort = updates.findLast(({ reasoning }) => reasoning !== undefined);
  const format = updates.findLast(({ text }) => text !== undefined);
  let left = MAX_ASIDES_LENGTH;
  const isWithin = (item: Item) => {
    left -= JSON.stringify(item).length;
    return left >= 0;
  };
  return [...new Set([...lists.values(), ...updates.filter((each) => each === effort || each === format)])]
    .filter(isWithin)
    .concat(brought.toReversed().filter(isWithin).toReversed());
}

/** Characters of items in a prompt: their own, or those of the raw messages behind them. */
export function promptLength(items: readonly Item[], replays: readonly Replay[]): number {
  const raw = new Map(replays.map((replay) => [replay.item, lengthOf([replay.messages, replay.exchange?.output])]));
  return items.reduce((sum, item) => sum + Math.max(lengthOf(item), raw.get(item.id ?? "") ?? 0), 0);
}

/** Fields that describe an item, or that no model reads. */
const FRAME_KEYS = new Set([
  "type",
  "id",
  "role",
  "status",
  "call_id",
  "phase",
  "detail",
  "encrypted_content",
  "file_pictures",
]);

/** Characters in all texts of items. */
export function lengthOf(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (typeof value !== "object" || value === null) return 0;
  if (Array.isArray(value)) return value.reduce<number>((sum, each) => sum + lengthOf(each), 0);
  return Object.entries(value).reduce((sum, [key, each]) => (FRAME_KEYS.has(key) ? sum : sum + lengthOf(each)), 0);
}
