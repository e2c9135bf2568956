import { z } from "zod";
import { reasoningEffort, textFormat } from "../output-settings.ts";
import { loadedTools, tool } from "../tools.ts";
import type { ItemType } from "./item-type.ts";
import { itemId } from "./parts.ts";
import { answered, given, normal } from "./shapes.ts";

/** More tools from there on. */
export const additionalTools = {
  prefix: "at",
  kind: "tools",
  bringsTools: true,
  input: given("additional_tools", {
    id: itemId,
    role: z.literal("developer").nullish(),
    tools: loadedTools,
  }).transform(normal("type id role tools", { role: "developer" })),
  stored: () => answered("additional_tools", { role: z.literal("developer"), tools: z.array(tool) }),
} as const satisfies ItemType;

/** Settings that apply from there on, until the next of them. */
export const configurationUpdate = {
  prefix: "cfg",
  kind: "settings",
  input: given("configuration_update", {
    id: itemId,
    reasoning: z
      .object({ effort: reasoningEffort.nullish() })
      .nullish()
      .transform((reasoning) => (reasoning?.effort == null ? undefined : { effort: reasoning.effort })),
    text: z.object({ format: textFormat }).nullish(),
  }).transform(normal("type id reasoning text")),
  stored: () =>
    answered("configuration_update", {
      reasoning: z.object({ effort: reasoningEffort }).optional(),
      text: z.object({ format: textFormat }).optional(),
    }),
} as const satisfies ItemType;
