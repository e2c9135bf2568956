import {
  addConversationItems,
  createConversation,
  deleteConversation,
  deleteConversationItem,
  listConversationItems,
  retrieveConversation,
  retrieveConversationItem,
  updateConversation,
} from "../api/conversations.ts";
import { includeQuery, pageQuery, treeQuery } from "../api/queries.ts";
import { conversationTree } from "../api/responses.ts";
import { itemList, jsonText } from "./answers.ts";
import { callerOf, callWithBody, hasBody, jsonBody } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { byTenantIn, json, ok } from "./openapi/operation.ts";

const byTenant = byTenantIn("Conversations");

export const conversations = [
  endpoint("POST /v1/conversations", {
    summary: "create a conversation: `items` (≤ 20), `metadata`",
    operation: byTenant("createConversation", "request", {
      body: { ...json("CreateConversation"), isOptional: true },
      answers: ok("Conversation"),
    }),
    handle: async (context) => {
      // The body may be absent.
      const { caller, body } = hasBody(context) ? await callWithBody(context) : { caller: callerOf(context), body: {} };
      return context.json(await createConversation(caller, body ?? {}));
    },
  }),
  endpoint("GET /v1/conversations/:id", {
    summary: "retrieve",
    operation: byTenant("retrieveConversation", "read", { answers: ok("Conversation") }),
    handle: async (context) => context.json(await retrieveConversation(callerOf(context), context.req.param("id"))),
  }),
  endpoint("POST /v1/conversations/:id", {
    summary: "change its `metadata`",
    operation: byTenant("updateConversation", "request", {
      body: json("UpdateMetadata"),
      answers: ok("Conversation"),
    }),
    handle: async (context) => {
      const body = await jsonBody(context);
      return context.json(await updateConversation(callerOf(context), context.req.param("id"), body));
    },
  }),
  endpoint("DELETE /v1/conversations/:id", {
    summary: "delete; responses in it stay",
    operation: byTenant("deleteConversation", "read", { answers: ok("DeletedConversation") }),
    handle: async (context) => {
      const id = context.req.param("id");
      await deleteConversation(callerOf(context), id);
      return context.json({ id, object: "conversation.deleted", deleted: true });
    },
  }),
  endpoint("GET /v1/conversations/:id/items", {
    summary: "its items: `limit` 1–100 (20), `order` `desc`\\|`asc`, `after`, `include`",
    operation: byTenant("listConversationItems", "read", { answers: ok("ItemList") }),
    query: pageQuery,
    handle: async (context, page) =>
      itemList(context, await listConversationItems(callerOf(context), context.req.param("id"), page)),
  }),
  endpoint("POST /v1/conversations/:id/items", {
    summary: "add `items` (≤ 20)",
    operation: byTenant("addConversationItems", "request", {
      body: json("AddItems"),
      answers: ok("ItemList"),
      errors: [409, 429],
    }),
    query: includeQuery,
    handle: async (context, { include }) => {
      const { caller, body } = await callWithBody(context);
      return itemList(context, await addConversationItems(caller, context.req.param("id"), body, include));
    },
  }),
  endpoint("GET /v1/conversations/:id/items/:item", {
    summary: "one of them",
    operation: byTenant("retrieveConversationItem", "read", { answers: ok("Item") }),
    query: includeQuery,
    handle: async (context, { include }) => {
      const { id, item } = context.req.param();
      return jsonText(context, await retrieveConversationItem(callerOf(context), id, item, include));
    },
  }),
  endpoint("DELETE /v1/conversations/:id/items/:item", {
    summary: "take it out",
    operation: byTenant("deleteConversationItem", "read", { answers: ok("Conversation"), errors: [409, 429] }),
    handle: async (context) => {
      const { id, item } = context.req.param();
      return context.json(await deleteConversationItem(callerOf(context), id, item));
    },
  }),
  endpoint("GET /v1/conversations/:id/tree", {
    summary: "its responses, and those that branch off it: as `GET /v1/responses/{id}/tree`",
    operation: byTenant("readConversationTree", "read", { answers: ok("Tree") }),
    query: treeQuery,
    handle: async (context, page) =>
      itemList(context, await conversationTree(callerOf(context), context.req.param("id"), page)),
  }),
];
