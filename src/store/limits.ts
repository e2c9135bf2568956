import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import { contextLengthExceeded } from "@responses-edge/responses-api/errors";
import type { Item } from "@responses-edge/responses-api/items/registry";

/**
 * The lengths that may cross between the Worker and a home in one call. Cloudflare's limit
 * is 32 MiB; the local runtime has none. All lengths are UTF-16 units of JSON text: a unit takes one byte or two.
 */

/** The most that all texts of a call have together; the rest of the 32 MiB is for what frames them. */
export const MAX_CALL_LENGTH = 15 * 1024 * 1024;

/** The longest history of one turn. */
export const MAX_HISTORY_LENGTH = 12 * 1024 * 1024;

/** Most that is read to make one up: items that were taken out, and those beside the ones that are referred to, are read with the others. */
export const MAX_READ_LENGTH = 4 * MAX_HISTORY_LENGTH;

/** The longest page of items: it ends early, and says that there is more. */
export const MAX_PAGE_LENGTH = 4 * 1024 * 1024;

/** The longest line of an export: a turn, or what one call carries of it, and what frames it. */
export const MAX_LINE_LENGTH = MAX_CALL_LENGTH + 64 * 1024;

/** A request must leave so much to its answer. */
const MIN_OUTPUT_LENGTH = 1024 * 1024;

/**
 * The most that a turn may put out so that all of it, with its request, can be kept and given again in one call.
 * Throws the 400 of a request that leaves too little.
 */
export function maxOutputLength(request: CreateRequest, input: readonly Item[]): number {
  const { input: _input, ...rest } = request;
  return lengthBeside(JSON.stringify(input).length + JSON.stringify(rest).length);
}

/** The same for a request of which the length is known. */
export function lengthBeside(length: number): number {
  const left = MAX_CALL_LENGTH - length;
  if (left >= MIN_OUTPUT_LENGTH) return left;
  throw contextLengthExceeded("The request is too large to be stored with its response.");
}
