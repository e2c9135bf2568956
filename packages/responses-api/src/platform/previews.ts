import { parseJsonPrefix } from "@responses-edge/bounded-io/json-text";
import type { Item } from "../items/registry.ts";
import type { Preview } from "./tree.ts";

/** Excerpts of a turn for lists of turns: the beginning, and the words for a search. They never have reasoning. */

/** UTF-16 units of a preview's text. */
const PREVIEW_LENGTH = 160;

/** The length of text that is searched for them, because it may begin with blanks. */
const READ_LENGTH = 4 * PREVIEW_LENGTH;

/** Most places that are tried as the beginning of an item. */
const MAX_TRIED = 32;

/** The items of a JSON array, or of its beginning. */
export function readPrefix(json: string): ReadItem[] {
  return (parseJsonPrefix(json) as ReadItem[]).filter((item) => typeof item?.type === "string");
}

/**
 * The items in the last `length` UTF-16 units of a JSON array. Undefined if it is shorter, if the text is cut, or if none of them is a
 * message of the user. Parsing only the end of a long conversation makes its entry in a list cheap.
 */
export function readSuffix(json: string, length: number): ReadItem[] | undefined {
  if (json.length <= length) return undefined;
  const end = json.slice(-length);
  // A quote within a text is escaped, so this is no text. Where it is within an item, what follows is not valid.
  for (const { index } of end.matchAll(/\},\{"[a-z_]+":/g).take(MAX_TRIED)) {
    try {
      const items = JSON.parse(`[${end.slice(index + 2)}`) as ReadItem[];
      return items.some(({ type, role }) => type === "message" && role === "user") ? items : undefined;
    } catch {
      // The next place may be between two items.
    }
  }
  return undefined;
}

/** The last input of the model: of the user, or else of a tool. */
export function inputPreview(items: readonly ReadItem[], isTakenOut: IsTakenOut): Preview | null {
  return preview(items, isTakenOut, ({ role }) => role === "user");
}

/** The last text of the model, or else its last call. */
export function outputPreview(items: readonly ReadItem[], isTakenOut: IsTakenOut): Preview | null {
  return preview(items, isTakenOut, () => true);
}

/** The texts of users and models; the last ones if they are longer than `most` UTF-16 units. */
export function messageTexts(items: readonly ReadItem[], isTakenOut: IsTakenOut, most: number): string {
  let text = "";
  for (const item of items.toReversed()) {
    if (text.length >= most) break;
    const isSaid = item.type === "message" && (item.role === "user" || item.role === "assistant");
    if (isSaid && isThere(item, isTakenOut)) text = `${textOfParts(item.content, most)}\n${text}`;
  }
  return text.slice(-most).toWellFormed();
}

type IsTakenOut = (id: string) => boolean;

/** An item that may be cut: it may lack any field but its type. */
export type ReadItem = { type: string } & Partial<Record<string, unknown>>;

/** The preview of the last message that is wanted, or else of the last item. */
function preview(
  items: readonly ReadItem[],
  isTakenOut: IsTakenOut,
  isWanted: (message: ReadItem) => boolean,
): Preview | null {
  const item =
    items.findLast((each) => each.type === "message" && isWanted(each) && isThere(each, isTakenOut)) ??
    items.findLast((each) => isThere(each, isTakenOut));
  return item ? { type: item.type, text: oneLine(textOf(item)) } : null;
}

function isThere({ type, id }: ReadItem, isTakenOut: IsTakenOut): boolean {
  return type !== "reasoning" && !(typeof id === "string" && isTakenOut(id));
}

/** The words of an item, or at least the beginning of them. */
function textOf(item: ReadItem): string {
  switch (item.type as Item["type"]) {
    case "message":
      return textOfParts(item.content);
    case "function_call":
    case "mcp_call":
      return `${textOfParts(item.name)}(${textOfParts(item.arguments)})`;
    case "custom_tool_call":
      return `${textOfParts(item.name)}(${textOfParts(item.input)})`;
    case "code_interpreter_call":
      return textOfParts(item.code);
    default:
      return textOfParts(item.output);
  }
}

/** A text, or the texts of parts, one after the other. */
function textOfParts(content: unknown, most = READ_LENGTH): string {
  if (typeof content === "string") return content.slice(0, most);
  if (!Array.isArray(content)) return "";
  let text = "";
  for (const part of content as { text?: unknown; refusal?: unknown }[]) {
    const said = part?.text ?? part?.refusal;
    if (typeof said === "string") text += `${said.slice(0, most)} `;
    if (text.length >= most) break;
  }
  return text;
}

function oneLine(text: string): string {
  const line = text.slice(0, READ_LENGTH).replace(/\s+/g, " ").trim();
  // Never half a surrogate pair.
  return line.length <= PREVIEW_LENGTH
    ? line
    : `${line
        .slice(0, PREVIEW_LENGTH)
        .toWellFormed()
        .replace(/\ufffd$/, "")}…`;
}
