import { type ApiError, invalidRequest } from "../protocol/errors.ts";
import { MAX_PAGE_LENGTH } from "./limits.ts";

/** Pages of items, as `GET …/items` and `GET …/input_items` give them, and of the nodes of a tree. */

export interface PageRequest {
  limit: number;
  order: "asc" | "desc";
  /** The id of the item that the page comes after. */
  after?: string;
}

/** A page of items; `data` is the JSON text of their array. */
export interface ItemPage {
  data: string;
  firstId: string | null;
  lastId: string | null;
  hasMore: boolean;
}

/** The first `limit` (1 or more) of the items, or fewer where they are large. The items are in the order of the page. */
export function pageOf(items: readonly { id?: string | undefined }[], limit: number): ItemPage {
  const data: string[] = [];
  let length = 0;
  for (const item of items.slice(0, limit)) {
    const json = JSON.stringify(item);
    length += json.length;
    if (data.length > 0 && length > MAX_PAGE_LENGTH) break;
    data.push(json);
  }
  return {
    data: `[${data.join(",")}]`,
    firstId: items[0]?.id ?? null,
    lastId: items[data.length - 1]?.id ?? null,
    hasMore: items.length > data.length,
  };
}

/** The 400 for a page that is to come after an item which the list does not have. */
export function unknownCursor(after: string): ApiError {
  return invalidRequest("after", `Invalid 'after': no item with id '${after}' found.`, "item_not_found");
}
