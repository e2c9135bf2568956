import { randomUUID } from "node:crypto";
import { type Context, Hono } from "hono";
import { z } from "zod";
import { checkRequestMedia } from "../assembly/media-policy.ts";
import { list } from "../protocol/collections.ts";
import { metadata } from "../protocol/create-request.ts";
import { ApiError, conversationNotFound, invalidRequest } from "../protocol/errors.ts";
import { conversationId, newTurnAddress, type TurnAddress } from "../protocol/ids.ts";
import { type InputItem, inputItem } from "../protocol/items.ts";
import { parse } from "../protocol/validation.ts";
import { conversationAddress, HomeClient, unwrap } from "../store/client.ts";
import { MAX_CALL_LENGTH } from "../store/limits.ts";
import { withItemIds } from "../turn/history.ts";
import { checkMedia } from "../turn/media.ts";
import type { AppEnv } from "./app-env.ts";
import { readJson } from "./body.ts";
import { JSON_HEADERS } from "./create-response.ts";
import { checkIncludeQuery, listBody, readPageQuery } from "./queries.ts";

/** `/v1/conversations`: the conversation object and its items. Limits are OpenAI's. */

const MAX_ITEMS = 20;
const createBody = z.object({ items: list(inputItem, { max: MAX_ITEMS }).nullish(), metadata: metadata.nullish() });
const updateBody = z.object({ metadata });
const addItemsBody = z.object({ items: list(inputItem, { min: 1, max: MAX_ITEMS }) });

export const conversations = new Hono<AppEnv>()
  .post("/", async (context) => {
    const body = parse(createBody, (await readOptionalJson(context)) ?? {});
    const homes = new HomeClient(context.env, context.get("tenant"));
    const address = newTurnAddress();
    const first = await toItems(context, homes, body.items ?? [], address);
    const stub = homes.stub(address.home);
    return context.json(
      await stub.createConversation(conversationId(address), address.turn, body.metadata ?? {}, first),
    );
  })
  .get("/:id", async (context) => {
    const { id, stub } = locate(context);
    return context.json(found(id, await stub.conversation(id)));
  })
  .post("/:id", async (context) => {
    const body = parse(updateBody, await readJson(context.req.raw, context.get("config").maxRequestBytes));
    const { id, stub } = locate(context);
    return context.json(found(id, await stub.updateConversation(id, body.metadata)));
  })
  .delete("/:id", async (context) => {
    const { id, stub } = locate(context);
    if (!(await stub.deleteConversation(id))) throw conversationNotFound(id);
    return context.json({ id, object: "conversation.deleted", deleted: true });
  })
  .get("/:id/items", async (context) => {
    const query = readPageQuery(context);
    const { id, stub } = locate(context);
    return context.body(listBody(unwrap(found(id, await stub.conversationItems(id, query)))), 200, JSON_HEADERS);
  })
  .post("/:id/items", async (context) => {
    checkIncludeQuery(context);
    const { maxRequestBytes, conversationLockWaitMs } = context.get("config");
    const body = parse(addItemsBody, await readJson(context.req.raw, maxRequestBytes));
    const { id, address, homes, stub } = locate(context);
    const place = newTurnAddress(address.home);
    const added = await toItems(context, homes, body.items, place);
    const page = await stub.addConversationItems(id, place.turn, added, randomUUID(), conversationLockWaitMs);
    return context.body(listBody(unwrap(found(id, page))), 200, JSON_HEADERS);
  })
  .get("/:id/items/:item", async (context) => {
    checkIncludeQuery(context);
    const { id, stub } = locate(context);
    const itemId = context.req.param("item");
    if (!(await stub.conversation(id))) throw conversationNotFound(id);
    const item = await stub.conversationItem(id, itemId);
    if (item === null) throw itemNotFound(id, itemId);
    return context.body(item, 200, JSON_HEADERS);
  })
  .delete("/:id/items/:item", async (context) => {
    const { id, stub } = locate(context);
    const itemId = context.req.param("item");
    const { conversationLockWaitMs } = context.get("config");
    const result = found(id, await stub.deleteConversationItem(id, itemId, randomUUID(), conversationLockWaitMs));
    const conversation = unwrap(result);
    if (!conversation) throw itemNotFound(id, itemId);
    return context.json(conversation);
  });

/** The body of a create, which may be left out altogether. */
async function readOptionalJson(context: Context<AppEnv>): Promise<unknown> {
  const { raw } = context.req;
  if (raw.body === null || raw.headers.get("content-length") === "0") return undefined;
  return readJson(raw, context.get("config").maxRequestBytes);
}

/** Items to keep, as a JSON array: references resolved, an id on each. */
async function toItems(
  context: Context<AppEnv>,
  homes: HomeClient,
  given: InputItem[],
  address: TurnAddress,
): Promise<string> {
  const config = context.get("config");
  await checkRequestMedia(given, "items", config, context.req.raw.signal);
  const { input } = await homes.past(given, null);
  checkMedia(input, config.isMediaListed, ({ index }) => `items[${index}]`);
  const items = JSON.stringify(withItemIds(input, address, true));
  if (items.length > MAX_CALL_LENGTH) throw invalidRequest("items", "The items are too large to be stored.");
  return items;
}

function locate(context: Context<AppEnv>) {
  const id = context.req.param("id") ?? "";
  const address = conversationAddress(id);
  const homes = new HomeClient(context.env, context.get("tenant"));
  return { id, address, homes, stub: homes.stub(address.home) };
}

function found<T>(id: string, value: T | null): T {
  if (value === null) throw conversationNotFound(id);
  return value;
}

function itemNotFound(id: string, itemId: string): ApiError {
  return new ApiError({
    status: 404,
    message: `Item with id '${itemId}' not found in conversation '${id}'.`,
    param: "item_id",
    code: "item_not_found",
  });
}
