import { z } from "zod";
import { MAX_ID_LENGTH } from "../ids.ts";
import type { ItemType } from "./item-type.ts";
import { itemId } from "./parts.ts";
import { given, once } from "./shapes.ts";

/** The types of these items. */
export const FOREIGN = ["computer_call", "computer_call_output"] as const;

const input = z
  .looseObject({ type: z.enum(FOREIGN), id: itemId })
  .transform(({ id, ...item }): { type: (typeof FOREIGN)[number]; id?: string; status: "completed" } => ({
    ...(id != null && { id }),
    // Lists of OpenAI have it, requests may leave it out.
    status: "completed",
    // Null is the same as absent, and lists of OpenAI have no null.
    ...(Object.fromEntries(Object.entries(item).filter(([, value]) => value !== null)) as typeof item),
  }));

const stored = once(() => z.looseObject({ type: z.enum(FOREIGN), id: z.string() }));

/**
 * An item of an OpenAI tool that models cannot use here, from a conversation that began at OpenAI. It is stored and
 * returned unchanged. No prompt has it, because no engine has a form for it. All these types share one schema.
 */
export function foreign<const Prefix extends string>(prefix: Prefix) {
  return { prefix, kind: "none", input, stored } as const satisfies ItemType;
}

/** Refers to a stored item. */
export const itemReference = {
  kind: "none",
  input: given("item_reference", { id: z.string().min(1).max(MAX_ID_LENGTH) }),
} as const satisfies ItemType;
