import { invalidRequest, responseNotFound } from "../protocol/errors.ts";
import { MAX_ID_LENGTH, parseResponseId, responseId, type TurnAddress } from "../protocol/ids.ts";
import { unwrap } from "../store/client.ts";
import type { HomeStub } from "../store/home-calls.ts";
import type { ItemPage } from "../store/item-store.ts";
import type { StoredResponse } from "../store/turn-store.ts";
import { type Include, type ShownPage, shownItemPage, shownResponse } from "./shown.ts";
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

export async function retrieveResponse(
  caller: Caller,
  address: TurnAddress,
  include: Include,
): Promise<StoredResponse> {
  const response = await ask(caller, address, (home) => home.retrieve(address.turn));
  return shownResponse(caller, response, include);
}

/** Stops a background run; gives the response as it then stands. Throws the 400 of a synchronous response. */
export async function cancelResponse(caller: Caller, address: TurnAddress): Promise<StoredResponse> {
  const response = unwrap(await ask(caller, address, (home) => home.cancel(address.turn)));
  return shownResponse(caller, response, []);
}

/** Deletes a response, for good; one that is running is stopped first. */
export async function deleteResponse(caller: Caller, address: TurnAddress): Promise<void> {
  await ask(caller, address, async (home) => (await home.delete(address.turn)) || null);
  caller.note?.({ type: "response.deleted", target: responseId(address) });
}

/** A page of a turn's own input. Throws the 400 of an `after` that the input does not have. */
export async function listInputItems(
  caller: Caller,
  address: TurnAddress,
  { include, ...page }: ShownPage,
): Promise<ItemPage> {
  const items = unwrap(await ask(caller, address, (home) => home.inputItems(address.turn, page)));
  return shownItemPage(caller, items, include);
}

/** Asks a response's home. Throws the 404 where that gives null, or keeps nothing. */
async function ask<T>(
  { homes }: Caller,
  address: TurnAddress,
  work: (home: HomeStub) => Promise<T | null>,
): Promise<T> {
  const value = await homes.ask(address.home, null, work);
  if (value === null) throw responseNotFound(responseId(address));
  return value;
}
