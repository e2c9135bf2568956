import { z } from "zod";
import type { ItemType } from "./item-type.ts";
import { itemId, programCall, shownProgramCall } from "./parts.ts";
import { answered, COMPLETED, given, inItem, normal } from "./shapes.ts";

/** A search that a client returns does not contain the model's results. */
export const webSearchCall = {
  prefix: "ws",
  kind: "server_call",
  input: given("web_search_call", {
    id: itemId,
    action: z.looseObject({ type: z.enum(["search", "open_page", "find_in_page", "find"]) }).nullish(),
    status: z.enum(["in_progress", "searching", "completed", "failed", "incomplete"]).nullish(),
    ...programCall,
  }).transform(
    normal("id type caller call_id result_index action status", {
      action: { type: "search", query: "" },
      ...COMPLETED,
    }),
  ),
  output: () =>
    answered("web_search_call", {
      action: z.discriminatedUnion("type", [
        z.object({
          type: z.literal("search"),
          query: z.string().optional(),
          queries: z.array(z.string()).optional(),
          sources: z.array(z.object({ type: z.literal("url"), url: z.string() })).optional(),
        }),
        z.object({ type: z.literal("open_page"), url: z.string().nullish() }),
        z.object({ type: z.literal("find_in_page"), pattern: z.string(), url: z.string() }),
      ]),
      status: z.enum(["in_progress", "searching", "completed", "failed", "incomplete"]),
      results: z
        .array(z.object({ url: z.string(), title: z.string(), snippet: z.string() }))
        .describe('The pages that a search has found, with `include: ["web_search_call.results"]`.')
        .optional(),
      ...shownProgramCall(),
    }),
  events: {
    "response.web_search_call.in_progress": inItem,
    "response.web_search_call.searching": inItem,
    "response.web_search_call.completed": inItem,
  },
} as const satisfies ItemType;
