import { invalidRequest } from "@responses-edge/responses-api/errors";
import type { CompactionItem, Item } from "@responses-edge/responses-api/items/registry";
import type { CompactionCodec, CompactionContent } from "./sealed-content/sealing.ts";

/**
 * The items that remain where a compaction replaces earlier ones. Stored items do not change: a turn that continues an
 * earlier response still has all of them.
 */

/** The role of this server's notes to the model; the engine decides it (`Engine.noteRole`). */
export type NoteRole = "user" | "developer";

/** The id of the summary among the items of a prompt. No stored item has it. */
export const SUMMARY_ID = "compaction_summary";

const FRAME =
  "The earlier part of this conversation has been replaced by the summary below, because it was too long. It was written " +
  "by the assistant, for itself. Go on from it, as if the whole conversation were still there: what the user said before " +
  "is in the user's own messages, work that is done need not be done again, and the summary itself need not be mentioned.";

/** The newest compaction of a history, opened. Items before it are not in the prompt. */
export interface OpenedCompaction {
  side: "history" | "input";
  /** Its index in the history. */
  index: number;
  content: CompactionContent;
}

/** The index of the newest compaction among items; -1 without one. A compaction that was cut off replaces nothing. */
export function newestCompaction(items: readonly { type: string }[]): number {
  for (let index = items.length - 1; index >= 0; index -= 1) {
    const item = items[index] as Item;
    if (item.type === "compaction" && item.encrypted_content !== "") return index;
  }
  return -1;
}

/**
 * Opens the newest compaction of a history, if there is one. Throws the 400 of an unreadable one, which names its field
 * in the request.
 */
export function openNewest(
  { history, input }: { history: readonly Item[]; input: readonly Item[] },
  request: { conversation?: unknown },
  codec: CompactionCodec,
): OpenedCompaction | undefined {
  for (const [side, items] of [
    ["input", input],
    ["history", history],
  ] as const) {
    const index = newestCompaction(items);
    const item = items[index];
    if (item?.type !== "compaction") continue;
    const param = paramOf({ side, index }, request);
    return { side, index, content: openCompaction(item, codec, { param, isStored: side === "history" }) };
  }
  return undefined;
}

/** The request's field that has a compaction. */
export function paramOf(
  { side, index }: Pick<OpenedCompaction, "side" | "index">,
  request: { conversation?: unknown },
) {
  if (side === "input") return `input[${index}].encrypted_content`;
  return request.conversation == null ? "previous_response_id" : "conversation";
}

const openedItems = new WeakMap<CompactionItem, CompactionContent>();

/** The content of a compaction item; each item is read once. Throws the 400 that names `param` if it is unreadable. */
export function openCompaction(
  item: CompactionItem,
  codec: CompactionCodec,
  { param, isStored }: { param: string; isStored: boolean },
): CompactionContent {
  const known = openedItems.get(item);
  if (known) return known;
  const content = codec.read(item.encrypted_content, isStored);
  // Without it the prompt would lose the whole conversation.
  if ("fault" in content) throw invalidRequest(param, content.fault, "invalid_encrypted_content");
  openedItems.set(item, content);
  return content;
}

/** The items that a compaction has kept for a prompt. */
export function standingItems({ before, summary, after }: CompactionContent, role: NoteRole): Item[] {
  return [...before, ...(summary === "" ? [] : [noteOf(`${FRAME}\n\n${summary}`, role, SUMMARY_ID)]), ...after];
}

/**
 * The items of a history from its newest compaction on. Instructions in this turn's input that the compaction does not
 * include come before it, wherever they were.
 */
export function standingPast(
  { history, input }: { history: readonly Item[]; input: readonly Item[] },
  opened: OpenedCompaction | undefined,
  role: NoteRole,
): { history: Item[]; input: Item[] } {
  const isLeft = (item: Item) => item.type !== "compaction" && item.type !== "compaction_trigger";
  if (!opened) return { history: history.filter(isLeft), input: input.filter(isLeft) };
  const { side, index, content } = opened;
  const standing = standingItems(content, role);
  if (side === "history") {
    return { history: [...standing, ...history.slice(index + 1).filter(isLeft)], input: input.filter(isLeft) };
  }
  const known = new Set(content.before.filter(isInstruction).map(textOf));
  const own = input.slice(0, index).filter((item) => isInstruction(item) && !known.has(textOf(item)));
  return { history: [...own, ...standing], input: input.slice(index + 1).filter(isLeft) };
}

/** Tells whether an item is an instruction: a system or developer message. */
export function isInstruction(item: Item): boolean {
  return item.type === "message" && (item.role === "system" || item.role === "developer");
}

/** The text of a message. */
export function textOf(item: Item): string {
  if (item.type !== "message") return "";
  return item.content.map((part) => ("text" in part ? part.text : "")).join("\n");
}

/** A note to the model. */
export function noteOf(text: string, role: NoteRole, id: string): Item {
  return { type: "message", id, role, status: "completed", content: [{ type: "input_text", text }] };
}
