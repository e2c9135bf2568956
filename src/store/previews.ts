import { parseJsonPrefix } from "@responses-edge/json-text";
import type { Item } from "../items/registry.ts";
import type { Preview } from "../protocol/tree.ts";

/** The beginning of what was said in a turn, for lists of turns. What a model thinks is never in it. */

/** UTF-16 units of a preview's text. */
const PREVIEW_LENGTH = 160;

/** Text that is looked at to find those: blanks may come first. */
const READ_LENGTH = 4 * PREVIEW_LENGTH;

/** What was said to the model last: by the user, or else by a tool. `items`: a JSON array, or its beginning. */
export function inputPreview(items: string, isTakenOut: (id: string) => boolean): Preview | null {
  return preview(items, isTakenOut, ({ role }) => role === "user");
}

/** What the model has said last, or else what it has called. */
export function outputPreview(items: string, isTakenOut: (id: string) => boolean): Preview | null {
  return preview(items, isTakenOut, () => true);
}

/** Items of which the last may be cut: it may lack any field but its type. */
type ReadItem = { type: string } & Partial<Record<string, unknown>>;

/** Of the last message that is wanted, or else of the last item. */
function preview(
  json: string,
  isTakenOut: (id: string) => boolean,
  isWanted: (message: ReadItem) => boolean,
): Preview | null {
  const items = (parseJsonPrefix(json) as ReadItem[]).filter(({ type }) => typeof type === "string");
  const isThere = ({ type, id }: ReadItem) => type !== "reasoning" && !(typeof id === "string" && isTakenOut(id));
  const item =
    items.findLast((each) => each.type === "message" && isWanted(each) && isThere(each)) ?? items.findLast(isThere);
  return item ? { type: item.type, text: oneLine(textOf(item)) } : null;
}

/** What an item says, or at least the beginning of it. */
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
function textOfParts(content: unknown): string {
  if (typeof content === "string") return content.slice(0, READ_LENGTH);
  if (!Array.isArray(content)) return "";
  let text = "";
  for (const part of content as { text?: unknown; refusal?: unknown }[]) {
    const said = part?.text ?? part?.refusal;
    if (typeof said === "string") text += `${said.slice(0, READ_LENGTH)} `;
    if (text.length >= READ_LENGTH) break;
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
