import type { StreamEvent } from "@responses-edge/responses-api/items/events";
import type { OutputItem } from "@responses-edge/responses-api/items/registry";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import type { BetaResponseItem } from "openai/resources/beta/responses/responses";
import type { Conversation } from "openai/resources/conversations/conversations";
import type {
  Response,
  ResponseItem,
  ResponseOutputItem,
  ResponseStreamEvent,
  ResponseUsage,
} from "openai/resources/responses/responses";
import type { z } from "zod";
import type { checkUpstream } from "../../src/api/health.ts";
import type { shownKey } from "../../src/api/keys.ts";
import type { eraseTenant } from "../../src/api/tenant-data.ts";
import type { AnswerName, Answers } from "../../src/http/openapi/schemas.ts";

/** Compares the description's schemas with types. Only the compiler checks this file; nothing runs. */

/** The type of a described schema. */
type Described<Name extends AnswerName> = z.output<Answers[Name]>;

/** Does not compile unless the two types are equal. */
type Fits<One extends Other, Other> = One;

/** Tools and one hint have their form in requests, errors may have this server's codes, and absent fields are null. */
type Own = "tools" | "tool_choice" | "output" | "error" | "usage" | "user" | "prompt_cache_retention";
type WithoutError<Item> = Item extends unknown ? Omit<Item, "error"> : never;
type AgentItem = { type: "multi_agent_call" | "multi_agent_call_output" | "agent_message" };
type PlainItem = WithoutError<Exclude<Described<"OutputItem">, { tools: unknown; execution: unknown } | AgentItem>>;
type ItemEvent = "response.output_item.added" | "response.output_item.done";
type LifeEvent = Extract<ResponseStreamEvent, { response: unknown }>["type"];
type DescribedEvent = Described<"ResponseStreamEvent">;

/** Every output of this server's code is described. */
export type OwnTypesAreDescribed = [
  Fits<keyof ResponseObject, keyof Described<"ResponseObject">>,
  Fits<OutputItem["type"], Described<"OutputItem">["type"]>,
  Fits<StreamEvent["type"], DescribedEvent["type"]>,
  Fits<DescribedEvent["type"], StreamEvent["type"]>,
  Fits<ReturnType<typeof shownKey>, Described<"ApiKey">>,
  Fits<Awaited<ReturnType<typeof checkUpstream>>["health"], Described<"UpstreamHealth">>,
  Fits<Awaited<ReturnType<typeof eraseTenant>>, Described<"ErasedTenant">>,
];

/** The fields of OpenAI's type that no response has here (docs/deviations.md). `output_text` is the SDK's own. */
type NeverGiven = "image" | "output_text";

/** All other fields that OpenAI's client may expect are described. */
export type OpenAIsTypesAreDescribed = [
  Fits<Exclude<keyof Response, NeverGiven>, keyof Described<"ResponseObject">>,
  Fits<keyof ResponseUsage, keyof Described<"Usage">>,
  Fits<
    Exclude<keyof ResponseUsage["input_tokens_details"], "cache_write_tokens_details">,
    keyof Described<"Usage">["input_tokens_details"]
  >,
  Fits<keyof ResponseUsage["output_tokens_details"], keyof Described<"Usage">["output_tokens_details"]>,
];

/** The description agrees with the types of OpenAI's client. */
export type DescribedTypesAreOpenAIs = [
  Fits<Omit<Described<"ResponseObject">, Own>, Omit<Response, Own | "output_text">>,
  Fits<PlainItem, WithoutError<ResponseOutputItem>>,
  Fits<PlainItem, WithoutError<ResponseItem>>,
  Fits<Extract<Described<"OutputItem">, { type: "multi_agent_call" }>, BetaResponseItem.MultiAgentCall>,
  Fits<Exclude<DescribedEvent, { type: LifeEvent | ItemEvent }>, ResponseStreamEvent>,
  Fits<Described<"Conversation">, Conversation>,
];
