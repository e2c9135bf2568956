import { list } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import type { ItemType } from "./item-type.ts";
import { itemId, programCall, shownProgramCall, text } from "./parts.ts";
import { answered, COMPLETED, given, inItem, itemDelta, normal } from "./shapes.ts";

export const codeInterpreterCall = {
  prefix: "ci",
  kind: "server_call",
  input: given("code_interpreter_call", {
    id: itemId,
    code: text.nullish(),
    container_id: z.string().max(256).nullish(),
    outputs: list(z.looseObject({ type: z.enum(["logs", "image"]) })).nullish(),
    status: z.enum(["in_progress", "completed", "incomplete", "interpreting", "failed"]).nullish(),
    ...programCall,
  }).transform(
    normal("id type caller call_id result_index code container_id outputs status", {
      code: null,
      container_id: "auto",
      outputs: null,
      ...COMPLETED,
    }),
  ),
  output: () =>
    answered("code_interpreter_call", {
      code: z.string().nullable(),
      container_id: z.string(),
      outputs: z
        .array(
          z.discriminatedUnion("type", [
            z.object({ type: z.literal("logs"), logs: z.string() }),
            z.object({ type: z.literal("image"), url: z.string() }),
          ]),
        )
        .nullable(),
      status: z.enum(["in_progress", "completed", "incomplete", "interpreting", "failed"]),
      ...shownProgramCall(),
    }),
  written: "code",
  events: {
    "response.code_interpreter_call.in_progress": inItem,
    "response.code_interpreter_call_code.delta": itemDelta,
    "response.code_interpreter_call_code.done": () => ({ ...inItem(), code: z.string() }),
    "response.code_interpreter_call.interpreting": inItem,
    "response.code_interpreter_call.completed": inItem,
  },
} as const satisfies ItemType;
