import { invalidRequest, responseNotFound } from "../protocol/errors.ts";
import { MAX_ID_LENGTH, parseResponseId, responseId, type TurnAddress } from "../protocol/ids.ts";
import { unwrap } from "../store/client.ts";
import type { ItemPage, PageRequest } from "../store/item-page.ts";
import type { StoredResponse } from "../store/turn-store.ts";
import type { Caller } from "./transport.ts";

/** Responses that are there already. All throw the 404 of one that is unknown, deleted or another tenant's. */

/** Where a response lives. Throws the 404 of an id that this server cannot have made, and the 400 of one too long. */
export function responseAddress(id: string): TurnAddress {
  if (id.length > MAX_ID_LENGTH) {
    throw invalidRequest(
      "response_id",
      `Invalid 'response_id': string too long. Expected a string with maximum length ${MAX_ID_LENGTH}.`,
      "string_above_max_length",
    );
  }
  const address = parseResponseId(id);
  if (!address) throw responseNotFound(id);
  return address;
}

export async function retrieveResponse({ homes }: Caller, address: TurnAddress): Promise<StoredResponse> {
  const response = await homes.stub(address.home).retrieve(address.turn);
  return found(address, response);
}

/** Stops a background run; gives the response as it then stands. Throws the 400 of a synchronous response. */
export async function cancelResponse({ homes }: Caller, address: TurnAddress): Promise<StoredResponse> {
  return unwrap(found(address, await homes.stub(address.home).cancel(address.turn)));
}

/** Deletes a response, for good; one that is running is stopped first. */
export async function deleteResponse({ homes }: Caller, address: TurnAddress): Promise<void> {
  if (!(await homes.stub(address.home).delete(address.turn))) throw responseNotFound(responseId(address));
}

/** A page of a turn's own input. Throws the 400 of an `after` that the input does not have. */
export async function listInputItems({ homes }: Caller, address: TurnAddress, page: PageRequest): Promise<ItemPage> {
  return unwrap(found(address, await homes.stub(address.home).inputItems(address.turn, page)));
}

function found<T>(address: TurnAddress, value: T | null): T {
  if (value === null) throw responseNotFound(responseId(address));
  return value;
}
