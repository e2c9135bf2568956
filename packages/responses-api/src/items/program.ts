import { z } from "zod";
import type { ClientCall, ClientOutput, ItemType } from "./item-type.ts";
import { callId, itemId, text } from "./parts.ts";
import { answered, given, normal } from "./shapes.ts";

/** The name by which models call the tool that takes a program. */
export const PROGRAM_TOOL = "programmatic_tool_calling";

/** The maximum of a program and of a fingerprint, in UTF-16 units. */
export const MAX_CODE_LENGTH = 1_048_576;
const MAX_FINGERPRINT_LENGTH = 1_024;

const call = given("program", {
  id: itemId,
  call_id: callId,
  code: z.string().max(MAX_CODE_LENGTH),
  fingerprint: z.string().max(MAX_FINGERPRINT_LENGTH),
}).transform(normal("id type call_id code fingerprint"));

/** A program that a model has written. This server runs it, and its calls name it as their `caller`. */
export const program = {
  prefix: "prog",
  kind: "call",
  input: call,
  output: () => answered("program", { call_id: z.string(), code: z.string(), fingerprint: z.string() }),
  events: {},
  called: ({ call_id, code }: z.output<typeof call>): ClientCall => ({
    call_id,
    flatName: PROGRAM_TOOL,
    arguments: JSON.stringify({ code }),
  }),
} as const satisfies ItemType;

const ended = z.enum(["completed", "incomplete"]);

const output = given("program_output", { id: itemId, call_id: callId, result: text, status: ended }).transform(
  normal("id type call_id result status"),
);

/** The output of a program: all that the model is told of it. */
export const programOutput = {
  prefix: "progo",
  kind: "output",
  input: output,
  output: () => answered("program_output", { call_id: z.string(), result: z.string(), status: ended }),
  events: {},
  answer: ({ call_id, result }: z.output<typeof output>): ClientOutput => ({ call_id, output: result }),
} as const satisfies ItemType;
