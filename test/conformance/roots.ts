import type { Conversation, ConversationDeletedResource } from "openai/resources/conversations/conversations";
import type { ConversationItem, ConversationItemList } from "openai/resources/conversations/items";
import type { ResponseItemList } from "openai/resources/responses/input-items";
import type { InputTokenCountResponse } from "openai/resources/responses/input-tokens";
import type {
  CompactedResponse,
  Response,
  ResponseItem,
  ResponseOutputItem,
  ResponseStreamEvent,
} from "openai/resources/responses/responses";

/** The types of the installed `openai` package that `schemas.ts` turns into JSON Schemas. Read as text, never imported. */
export interface Roots {
  compactedResponse: CompactedResponse;
  conversation: Conversation;
  conversationDeleted: ConversationDeletedResource;
  conversationItem: ConversationItem;
  conversationItemList: ConversationItemList;
  inputTokenCount: InputTokenCountResponse;
  response: Response;
  responseItem: ResponseItem;
  responseItemList: ResponseItemList;
  responseOutputItem: ResponseOutputItem;
  responseStreamEvent: ResponseStreamEvent;
}
