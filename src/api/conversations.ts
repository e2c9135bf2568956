import { randomUUID } from "node:crypto";
import { list } from "@responses-edge/bounded-io/schemas/collections";
import { metadata } from "@responses-edge/responses-api/create-fields";
import { type ApiError, conversationNotFound, invalidRequest, notFound } from "@responses-edge/responses-api/errors";
import { conversationId, newTurnAddress, type TurnAddress } from "@responses-edge/responses-api/ids";
import { type InputItem, inputItem } from "@responses-edge/responses-api/items/registry";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { untilEntered } from "@responses-edge/turn/contract/measurements";
import { withItemIds } from "@responses-edge/turn/prompt";
import { z } from "zod";
import { checkMedia, checkRequestItems } from "../assembly/media-policy.ts";
import { anySeesImages } from "../assembly/model-server.ts";
import { conversationAddress, homeHere } from "../store/home/home-client.ts";
import type { Conversation } from "../store/home/home-rows.ts";
import type { ItemPage } from "../store/home/item-store.ts";
import { checkMayStore } from "../store/home/may-store.ts";
import type { Stub } from "../store/objects/objects.ts";
import { MAX_CALL_LENGTH, unwrap } from "../store/objects/rpc.ts";
import { readInputFiles } from "./input-files.ts";
import { admitStored } from "./limit-reservation.ts";
import { noteHome } from "./policy.ts";
import { type Include, metadataBody, type ShownPage, shownItem, shownItemPage } from "./responses.ts";
import type { Caller } from "./transport.ts";

/**
 * Conversations and their items. `body` is the parsed JSON of a request; its limits are OpenAI's. Every function throws
 * the 404 of a conversation that is unknown, deleted or another tenant's. Those that change items throw the 409 and 429
 * of a conversation that is in use.
 */

const MAX_ITEMS = 20;
export const conversationBody = z.object({
  items: list(inputItem, { max: MAX_ITEMS }).nullish(),
  metadata: metadata.nullish(),
});
export const addItemsBody = z.object({ items: list(inputItem, { min: 1, max: MAX_ITEMS }) });

export async function createConversation(caller: Caller, body: unknown): Promise<Conversation> {
  const { items, metadata: values } = parse(conversationBody, body);
  checkMayStore(caller.identity);
  using _stored = await admitStored(caller, caller.bodyLength, 1);
  const address = newTurnAddress(homeHere(caller.tenant));
  const first = await toStoredItems(caller, items ?? [], address);
  await noteHome(caller, address.home);
  const owner = caller.identity.storingKey;
  // Awaited, because the reservation lasts until the conversation is stored.
  return await caller.homes
    .home(address.home)
    .createConversation(conversationId(address), address.turn, values ?? {}, first, owner);
}

export async function retrieveConversation(caller: Caller, id: string): Promise<Conversation> {
  return ask(caller, id, (home) => home.conversation(id));
}

export async function updateConversation(caller: Caller, id: string, body: unknown): Promise<Conversation> {
  const { metadata: values } = parse(metadataBody, body);
  return ask(caller, id, (home) => home.updateConversation(id, values ?? {}));
}

export async function deleteConversation(caller: Caller, id: string): Promise<void> {
  await ask(caller, id, async (home) => (await home.deleteConversation(id)) || null);
  caller.note?.({ type: "conversation.deleted", target: id });
}

export async function listConversationItems(
  caller: Caller,
  id: string,
  { include, ...page }: ShownPage,
): Promise<ItemPage> {
  const items = unwrap(await ask(caller, id, (home) => home.conversationItems(id, page)));
  return shownItemPage(caller, items, include);
}

/** Adds items, and gives them as they are stored. */
export async function addConversationItems(
  caller: Caller,
  id: string,
  body: unknown,
  include: Include,
): Promise<ItemPage> {
  const { items } = parse(addItemsBody, body);
  checkMayStore(caller.identity);
  const { home } = conversationAddress(id);
  using _stored = await admitStored(caller, caller.bodyLength, 0);
  // Items that no turn has made are stored as the input of a turn.
  const address = newTurnAddress(home);
  const added = await toStoredItems(caller, items, address);
  const { conversationLockWaitMs } = caller.config;
  await noteHome(caller, home);
  const owner = caller.identity.storingKey;
  const add = (stub: Stub<"HOME">) =>
    stub.addConversationItems(id, address.turn, added, randomUUID(), conversationLockWaitMs, owner);
  const page = await untilEntered(caller.observation?.measured, () => ask(caller, id, add));
  return shownItemPage(caller, unwrap(page), include);
}

/** One item, as JSON text. */
export async function retrieveConversationItem(
  caller: Caller,
  id: string,
  itemId: string,
  include: Include,
): Promise<string> {
  const item = await ask(caller, id, async (home) => {
    return (await home.conversation(id)) && { text: await home.conversationItem(id, itemId) };
  });
  if (item.text === null) throw itemNotFound(id, itemId);
  return shownItem(caller, item.text, include);
}

/** Takes an item out, and gives the conversation. */
export async function deleteConversationItem(caller: Caller, id: string, itemId: string): Promise<Conversation> {
  const { conversationLockWaitMs } = caller.config;
  const remove = (home: Stub<"HOME">) => home.deleteConversationItem(id, itemId, randomUUID(), conversationLockWaitMs);
  const result = await untilEntered(caller.observation?.measured, () => ask(caller, id, remove));
  const conversation = unwrap(result);
  if (!conversation) throw itemNotFound(id, itemId);
  return conversation;
}

/** The items to store, as a JSON array, with references resolved and an id on each. */
async function toStoredItems(caller: Caller, items: InputItem[], address: TurnAddress): Promise<string> {
  const { config, past, signal } = caller;
  const trigger = items.findIndex(({ type }) => type === "compaction_trigger");
  if (trigger !== -1) {
    throw invalidRequest(`items[${trigger}].type`, "A conversation cannot have a 'compaction_trigger'.");
  }
  await checkRequestItems(items, "items", caller, signal);
  const read = await readInputFiles(caller, items, {
    field: "items",
    signal,
    sees: () => anySeesImages(config, signal),
  });
  const { input } = await past.past(read.items, null);
  checkMedia(input, config.isMediaListed, ({ index }) => `items[${index}]`);
  const stored = JSON.stringify(withItemIds(input, address, true));
  if (stored.length > MAX_CALL_LENGTH) throw invalidRequest("items", "The items are too large to store.");
  return stored;
}

/** Asks a conversation's home. Throws the 404 where the home answers null, or stores nothing. */
async function ask<T>({ homes }: Caller, id: string, work: (home: Stub<"HOME">) => Promise<T | null>): Promise<T> {
  const value = await homes.ask(conversationAddress(id).home, null, work);
  if (value === null) throw conversationNotFound(id);
  return value;
}

function itemNotFound(id: string, itemId: string): ApiError {
  return notFound("Item", itemId, "item_id", { where: ` in conversation '${id}'` });
}
