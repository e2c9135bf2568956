import type { z } from "zod";
import { type ReasoningShown, shownHead, shownItems } from "../items/reasoning.ts";
import type { includeValues } from "../protocol/request-fields.ts";
import type { ItemPage, PageRequest } from "../store/item-store.ts";
import type { StoredResponse } from "../store/turn-store.ts";
import type { Caller } from "./transport.ts";

/** Stored responses and items as their caller sees them. */

export type Include = readonly z.output<typeof includeValues>[number][];

/** A page, and what is asked for in its items. */
export interface ShownPage extends PageRequest {
  include: Include;
}

export function shownResponse(caller: Caller, { head, output }: StoredResponse, include: Include): StoredResponse {
  const shown = reasoningShown(caller, include);
  return { head: shownHead(head, shown), output: shownItems(output, shown) };
}

/** The response to a create: there sealed reasoning is given without being asked for, as OpenAI gives it. */
export function createdResponse(caller: Caller, stored: StoredResponse): StoredResponse {
  return shownResponse(caller, stored, ["reasoning.encrypted_content"]);
}

export function shownItemPage(caller: Caller, page: ItemPage, include: Include): ItemPage {
  return { ...page, data: shownItems(page.data, reasoningShown(caller, include)) };
}

/** One item, as JSON text. */
export function shownItem(caller: Caller, json: string, include: Include): string {
  return shownItems(json, reasoningShown(caller, include));
}

function reasoningShown({ config }: Caller, include: Include): ReasoningShown {
  return { hidden: config.hidesReasoning, encrypted: include.includes("reasoning.encrypted_content") };
}
