import { z } from "zod";
import { flatName } from "../tool-names.ts";
import type { ClientCall, ClientOutput, ItemType } from "./item-type.ts";
import {
  answeredCall,
  answeredOutput,
  calledName,
  caller,
  callId,
  itemId,
  itemStatus,
  missing,
  shownCaller,
  text,
  textOutput,
  toolOutput,
} from "./parts.ts";
import { COMPLETED, given, inItem, itemDelta, normal } from "./shapes.ts";

const call = given("function_call", {
  call_id: callId,
  name: calledName,
  namespace: calledName.nullish(),
  arguments: text,
  id: itemId,
  status: itemStatus,
  caller,
  async: z.boolean().nullish(),
}).transform(normal("type id caller async call_id name namespace arguments status", COMPLETED));

export const functionCall = {
  prefix: "fc",
  kind: "call",
  input: call,
  output: () =>
    answeredCall("function_call", {
      name: z.string(),
      namespace: z.string().optional(),
      arguments: z.string(),
      async: z.boolean().optional(),
    }),
  written: "arguments",
  events: {
    "response.function_call_arguments.delta": itemDelta,
    "response.function_call_arguments.done": () => ({ ...inItem(), name: z.string(), arguments: z.string() }),
  },
  called: ({ call_id, namespace, name, arguments: json }: z.output<typeof call>): ClientCall => ({
    call_id,
    flatName: flatName(namespace, name),
    arguments: json,
  }),
} as const satisfies ItemType;

const answer = given("function_call_output", {
  call_id: callId.nullish(),
  name: calledName.nullish(),
  namespace: calledName.nullish(),
  output: toolOutput,
  id: itemId,
  status: itemStatus,
  caller,
}).superRefine((output, context) => {
  if (output.call_id != null || output.name != null) return;
  missing(context, "call_id", " Without it, 'name' is to tell which function was called.");
});

const form = normal("type id caller call_id name namespace output status", {}, COMPLETED);

export const functionCallOutput = {
  prefix: "fco",
  kind: "output",
  /** Without a `call_id` the call is found by its name (`matchOutputs`); until then the id is empty. */
  input: answer.transform(({ call_id, name, namespace, ...output }) =>
    form({ ...output, call_id: call_id ?? "", ...(call_id == null && { name, namespace }) }),
  ),
  output: () => answeredOutput("function_call_output", { output: textOutput(), caller: shownCaller() }),
  stored: () => answeredOutput("function_call_output", { output: toolOutput, caller: shownCaller() }),
  events: {},
  answer: (item: ClientOutput) => item,
} as const satisfies ItemType;
