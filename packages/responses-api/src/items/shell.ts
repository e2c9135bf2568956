import { list } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import type { ClientCall, ClientOutput, ItemType } from "./item-type.ts";
import {
  answeredCall,
  answeredOutput,
  caller,
  callId,
  commandLine,
  itemId,
  itemStatus,
  milliseconds,
  shownCaller,
  text,
} from "./parts.ts";
import { at, COMPLETED, delta, given, normal, once, withoutNulls } from "./shapes.ts";

const call = given("shell_call", {
  id: itemId,
  call_id: callId,
  action: z
    .object({
      commands: list(commandLine, { max: 1_000 }),
      timeout_ms: milliseconds,
      max_output_length: z.int().min(0).nullish(),
    })
    .transform(normal("commands timeout_ms max_output_length", { timeout_ms: null, max_output_length: null })),
  environment: z
    .looseObject({ type: z.string().max(64) })
    .nullish()
    .transform((environment) => (environment?.type === "local" ? { type: "local" as const } : null)),
  status: itemStatus,
  caller,
}).transform(normal("type id caller call_id action environment status", { environment: null, ...COMPLETED }));

const inCommand = once(() => ({ ...at(), command_index: z.int().min(0) }));
const wholeCommand = () => ({ ...inCommand(), command: z.string() });

export const shellCall = {
  prefix: "sh",
  kind: "call",
  input: call,
  output: () =>
    answeredCall("shell_call", {
      action: z.object({
        commands: z.array(z.string()),
        timeout_ms: z.int().nullable(),
        max_output_length: z.int().nullable(),
      }),
      environment: z.object({ type: z.literal("local") }).nullable(),
    }),
  events: {
    "response.shell_call_command.added": wholeCommand,
    "response.shell_call_command.delta": () => ({ ...inCommand(), ...delta() }),
    "response.shell_call_command.done": wholeCommand,
  },
  called: ({ call_id, action }: z.output<typeof call>): ClientCall => ({
    call_id,
    flatName: "shell",
    arguments: withoutNulls(action),
  }),
} as const satisfies ItemType;

/** The end of a shell command. */
const outcome = z.discriminatedUnion("type", [
  z.object({ type: z.literal("exit"), exit_code: z.int() }),
  z.object({ type: z.literal("timeout") }),
]);

const output = given("shell_call_output", {
  id: itemId,
  call_id: callId,
  output: list(z.object({ stdout: text, stderr: text, outcome }), { max: 1_000 }),
  max_output_length: z.int().min(0).nullish(),
  status: itemStatus,
  caller,
}).transform(normal("type id caller call_id output max_output_length status", { max_output_length: null }, COMPLETED));

export const shellCallOutput = {
  prefix: "sho",
  kind: "output",
  input: output,
  output: () =>
    answeredOutput("shell_call_output", {
      output: z.array(z.object({ stdout: z.string(), stderr: z.string(), outcome })),
      max_output_length: z.int().nullable(),
      caller: shownCaller(),
    }),
  events: {},
  answer: (item: z.output<typeof output>): ClientOutput => ({
    call_id: item.call_id,
    output: item.output.map(textOf).join("\n\n"),
  }),
} as const satisfies ItemType;

function textOf({ stdout, stderr, outcome: end }: z.output<typeof output>["output"][number]): string {
  const parts = [stdout, stderr === "" ? "" : `[stderr]\n${stderr}`];
  parts.push(end.type === "timeout" ? "[timed out]" : `[exit code ${end.exit_code}]`);
  return parts.filter((part) => part !== "").join("\n");
}
