import { z } from "zod";
import type { ClientCall, ClientOutput, ItemType } from "./item-type.ts";
import { caller, callId, itemId, itemStatus, shownCaller, text } from "./parts.ts";
import { answered, COMPLETED, given, normal } from "./shapes.ts";

const path = z.string().min(1).max(4096);

export const patchOperation = z.discriminatedUnion("type", [
  z.object({ type: z.literal("create_file"), path, diff: text }),
  z.object({ type: z.literal("update_file"), path, diff: text }),
  z.object({ type: z.literal("delete_file"), path }),
]);

const call = given("apply_patch_call", {
  id: itemId,
  call_id: callId,
  operation: patchOperation,
  status: itemStatus,
  caller,
}).transform(normal("type id caller call_id operation status", {}, COMPLETED));

export const applyPatchCall = {
  prefix: "apc",
  kind: "call",
  input: call,
  output: () =>
    answered("apply_patch_call", {
      call_id: z.string(),
      operation: patchOperation,
      status: z.enum(["in_progress", "completed"]),
      caller: shownCaller(),
    }),
  events: {},
  called: ({ call_id, operation }: z.output<typeof call>): ClientCall => ({
    call_id,
    flatName: "apply_patch",
    arguments: JSON.stringify(operation),
  }),
} as const satisfies ItemType;

const output = given("apply_patch_call_output", {
  id: itemId,
  call_id: callId,
  status: z.enum(["completed", "failed"]),
  output: text.nullish(),
  caller,
}).transform(normal("type id caller call_id status output", { output: null }));

export const applyPatchCallOutput = {
  prefix: "apco",
  kind: "output",
  input: output,
  output: () =>
    answered("apply_patch_call_output", {
      call_id: z.string(),
      status: z.enum(["completed", "failed"]),
      output: z.string().nullable(),
      caller: shownCaller(),
    }),
  events: {},
  answer: ({ call_id, output: text, status }: z.output<typeof output>): ClientOutput => ({
    call_id,
    output: text || (status === "failed" ? "Failed." : "Done."),
  }),
} as const satisfies ItemType;
