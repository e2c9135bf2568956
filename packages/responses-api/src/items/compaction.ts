import { z } from "zod";
import type { ItemType } from "./item-type.ts";
import { itemId } from "./parts.ts";
import { MAX_SEALED_LENGTH } from "./reasoning.ts";
import { answered, given, inItem, normal } from "./shapes.ts";

/** Replaces all items before it (docs/reasoning.md). */
export const compaction = {
  prefix: "cmp",
  kind: "compaction",
  input: given("compaction", { id: itemId, encrypted_content: z.string().min(1).max(MAX_SEALED_LENGTH) }).transform(
    normal("id type encrypted_content"),
  ),
  output: () => answered("compaction", { encrypted_content: z.string() }),
  events: { "response.compaction.compacting": inItem },
} as const satisfies ItemType;

/** Requests a compaction of the items before it, and nothing else. */
export const compactionTrigger = {
  kind: "compaction",
  input: given("compaction_trigger", { id: itemId }).transform(normal("id type")),
} as const satisfies ItemType;
