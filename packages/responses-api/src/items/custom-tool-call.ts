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
  shownCaller,
  text,
  textOutput,
  toolOutput,
} from "./parts.ts";
import { COMPLETED, given, inItem, itemDelta, normal } from "./shapes.ts";

const call = given("custom_tool_call", {
  call_id: callId,
  name: calledName,
  namespace: calledName.nullish(),
  input: text,
  id: itemId,
  status: itemStatus,
  caller,
  async: z.boolean().nullish(),
}).transform(normal("type id caller async status call_id name namespace input", COMPLETED));

export const customToolCall = {
  prefix: "ctc",
  kind: "call",
  input: call,
  output: () =>
    answeredCall("custom_tool_call", {
      name: z.string(),
      namespace: z.string().optional(),
      input: z.string(),
      async: z.boolean().optional(),
    }),
  written: "input",
  events: {
    "response.custom_tool_call_input.delta": itemDelta,
    "response.custom_tool_call_input.done": () => ({ ...inItem(), input: z.string() }),
  },
  called: ({ call_id, namespace, name, input }: z.output<typeof call>): ClientCall => ({
    call_id,
    flatName: flatName(namespace, name),
    arguments: JSON.stringify({ input }),
    input,
  }),
} as const satisfies ItemType;

export const customToolCallOutput = {
  prefix: "ctco",
  kind: "output",
  input: given("custom_tool_call_output", {
    call_id: callId,
    output: toolOutput,
    id: itemId,
    status: itemStatus,
    caller,
  }).transform(normal("type id caller call_id output status", {}, COMPLETED)),
  output: () => answeredOutput("custom_tool_call_output", { output: textOutput(), caller: shownCaller() }),
  stored: () => answeredOutput("custom_tool_call_output", { output: toolOutput, caller: shownCaller() }),
  events: {},
  answer: (item: ClientOutput) => item,
} as const satisfies ItemType;
