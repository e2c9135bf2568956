import { list } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import type { ItemType } from "./item-type.ts";
import { itemId, programCall, shownProgramCall, text } from "./parts.ts";
import { answered, COMPLETED, given, inItem, normal } from "./shapes.ts";

const STATUSES = ["in_progress", "searching", "completed", "incomplete", "failed"] as const;

const attribute = z.union([z.string(), z.number(), z.boolean()]);

/** A result that a client returns with only some of its fields. */
const UNKNOWN = { file_id: "", filename: "", score: 0, text: "", attributes: {} };

/** A search that a client returns contains the model's results only if they were included. */
export const fileSearchCall = {
  prefix: "fs",
  kind: "server_call",
  input: given("file_search_call", {
    id: itemId,
    queries: list(text).nullish(),
    results: list(
      z
        .object({
          file_id: z.string().nullish(),
          filename: z.string().nullish(),
          score: z.number().nullish(),
          text: text.nullish(),
          attributes: z.record(z.string(), attribute).nullish(),
        })
        .transform(normal("file_id filename score text attributes", UNKNOWN)),
    ).nullish(),
    status: z.enum(STATUSES).nullish(),
    ...programCall,
  }).transform(normal("id type caller call_id result_index queries results status", { queries: [], ...COMPLETED })),
  output: () =>
    answered("file_search_call", {
      queries: z.array(z.string()),
      results: z
        .array(
          z.object({
            file_id: z.string(),
            filename: z.string(),
            score: z.number(),
            text: z.string(),
            attributes: z.record(z.string(), attribute),
          }),
        )
        .nullish(),
      status: z.enum(STATUSES),
      ...shownProgramCall(),
    }),
  events: {
    "response.file_search_call.in_progress": inItem,
    "response.file_search_call.searching": inItem,
    "response.file_search_call.completed": inItem,
  },
} as const satisfies ItemType;
