import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { metadata, type responseIncludeValues } from "@responses-edge/responses-api/create-fields";
import { conversationNotFound, invalidRequest, responseNotFound } from "@responses-edge/responses-api/errors";
import {
  MAX_ID_LENGTH,
  parseResponseId,
  responseId,
  type TreeAddress,
  type TurnAddress,
  treeOf,
} from "@responses-edge/responses-api/ids";
import { withoutReadParts } from "@responses-edge/responses-api/items/parts";
import { type ReasoningShown, shownHead, shownItems } from "@responses-edge/responses-api/items/reasoning";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { ShownResponse } from "@responses-edge/turn/response";
import { z } from "zod";
import { conversationAddress } from "../store/home/home-client.ts";
import { type ItemPage, type PageRequest, unknownCursor } from "../store/home/item-store.ts";
import { type StoredResponse, timingOf } from "../store/home/stored-response.ts";
import type { Stub } from "../store/objects/objects.ts";
import { unwrap } from "../store/objects/rpc.ts";
import { withImages } from "./shown-images.ts";
import type { Caller } from "./transport.ts";

/** Existing responses. Every function throws the 404 of one that is unknown, deleted or another tenant's. */

/** The address of a response. Throws the 404 of an id that this server cannot have made, and the 400 of one that is too long. */
export function responseAddress(id: string): TurnAddress {
  if (id.length > MAX_ID_LENGTH) {
    const message = `Invalid 'response_id': string too long. Expected a string with maximum length ${MAX_ID_LENGTH}.`;
    throw invalidRequest("response_id", message, "string_above_max_length");
  }
  const address = parseResponseId(id);
  if (!address) throw responseNotFound(id);
  return address;
}

export async function retrieveResponse(caller: Caller, address: TurnAddress, include: Include): Promise<ShownResponse> {
  const response = await ask(caller, address, (home) => home.retrieve(address.turn));
  return shownResponse(caller, response, include);
}

/** Stops a background run, and gives the response in its state after that. Throws the 400 of a synchronous response. */
export async function cancelResponse(caller: Caller, address: TurnAddress): Promise<ShownResponse> {
  const response = unwrap(await ask(caller, address, (home) => home.cancel(address.turn)));
  return shownResponse(caller, response, []);
}

/** The body of a change of a response, or of a conversation. */
export const metadataBody = z.object({ metadata: metadata.nullable().describe("`null` removes all of it.") });

/** Replaces the metadata of a response, and gives the response. Throws the 409 of one that is running. */
export async function updateResponse(caller: Caller, address: TurnAddress, body: unknown): Promise<ShownResponse> {
  const { metadata: values } = parse(metadataBody, body);
  const response = unwrap(await ask(caller, address, (home) => home.updateResponse(address.turn, values ?? {})));
  return shownResponse(caller, response, []);
}

/** Deletes a response permanently. One that is running is stopped first. */
export async function deleteResponse(caller: Caller, address: TurnAddress): Promise<void> {
  await ask(caller, address, async (home) => (await home.delete(address.turn)) || null);
  caller.note?.({ type: "response.deleted", target: responseId(address) });
}

/** A page of a turn's own input. Throws the 400 of an `after` that is not in the input. */
export async function listInputItems(
  caller: Caller,
  address: TurnAddress,
  { include, ...page }: ShownPage,
): Promise<ItemPage> {
  const items = unwrap(await ask(caller, address, (home) => home.inputItems(address.turn, page)));
  return shownItemPage(caller, items, include);
}

/** Asks a response's home. Throws the 404 where the home answers null, or stores nothing. */
async function ask<T>(
  { homes }: Caller,
  address: TurnAddress,
  work: (home: Stub<"HOME">) => Promise<T | null>,
): Promise<T> {
  const value = await homes.ask(address.home, null, work);
  if (value === null) throw responseNotFound(responseId(address));
  return value;
}

/** Stored responses and items as their caller sees them. */

export type Include = readonly z.output<typeof responseIncludeValues>[number][];

/** The fields that the answer to a create includes: encrypted reasoning even if not asked for, as OpenAI's does. */
export function createdInclude({ include }: Pick<CreateRequest, "include">): Include {
  return include?.includes("timing") ? ["reasoning.encrypted_content", "timing"] : ["reasoning.encrypted_content"];
}

/** A page, and the fields to include in its items. */
export interface ShownPage extends PageRequest {
  include: Include;
}

export async function shownResponse(
  caller: Caller,
  { head, output, keptTiming }: StoredResponse,
  include: Include,
): Promise<ShownResponse> {
  const shown = reasoningShown(caller, include);
  return {
    head: shownHead(head, shown),
    output: await withImages(caller, shownItems(output, shown)),
    ...(include.includes("timing") && { timing: timingOf({ head, output, keptTiming }) }),
  };
}

export async function shownItemPage(caller: Caller, page: ItemPage, include: Include): Promise<ItemPage> {
  return { ...page, data: await shownItem(caller, page.data, include) };
}

/** Items of an input or output, as JSON text: one, or a list. */
export function shownItem(caller: Caller, json: string, include: Include): Promise<string> {
  return withImages(caller, shownItems(withoutReadParts(json), reasoningShown(caller, include)));
}

function reasoningShown({ config }: Caller, include: Include): ReasoningShown {
  return { hidden: config.hidesReasoning, encrypted: include.includes("reasoning.encrypted_content") };
}

/**
 * The tree of a response or a conversation: all its responses, in pages. Both functions throw the 404 of an id that is
 * unknown, deleted or another tenant's, and the 400 of an `after` that is no response of this tree.
 */

export async function responseTree({ homes }: Caller, address: TurnAddress, page: PageRequest): Promise<ItemPage> {
  const within = withinTree(page, treeOf(address));
  const tree = await homes.ask(address.home, null, (home) => home.tree(address, within));
  if (!tree) throw responseNotFound(responseId(address));
  return tree;
}

export async function conversationTree({ homes }: Caller, id: string, page: PageRequest): Promise<ItemPage> {
  const { home } = conversationAddress(id);
  const within = withinTree(page, { home, tree: "" });
  const tree = await homes.ask(home, null, (stub) => stub.conversationTree(id, home, within));
  if (!tree) throw conversationNotFound(id);
  return tree;
}

/** The same page, whose `after` is a turn of the tree. That turn may have been deleted in the meantime. */
function withinTree({ after, ...page }: PageRequest, { home, tree }: TreeAddress): PageRequest {
  if (after === undefined) return page;
  const address = parseResponseId(after);
  if (address?.home !== home || !address.turn.startsWith(tree)) throw unknownCursor(after);
  return { ...page, after: address.turn };
}
