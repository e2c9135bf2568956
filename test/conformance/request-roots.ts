import type { ConversationCreateParams, ConversationUpdateParams } from "openai/resources/conversations/conversations";
import type { ItemCreateParams } from "openai/resources/conversations/items";
import type { InputTokenCountParams } from "openai/resources/responses/input-tokens";
import type { ResponseCompactParams, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";

/** The bodies of requests, as types of the installed `openai` package. Read as text, never imported. */
export interface Roots {
  create: ResponseCreateParamsNonStreaming;
  compact: ResponseCompactParams;
  input_tokens: InputTokenCountParams;
  conversation: ConversationCreateParams;
  conversation_update: ConversationUpdateParams;
  conversation_items: ItemCreateParams;
}
