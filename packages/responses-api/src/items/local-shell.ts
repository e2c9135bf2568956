import { list, map } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import type { ClientCall, ClientOutput, ItemType } from "./item-type.ts";
import { answeredOutput, callId, commandLine, itemId, itemStatus, milliseconds, missing, text } from "./parts.ts";
import { answered, COMPLETED, given, normal, status, withoutNulls } from "./shapes.ts";

const call = given("local_shell_call", {
  id: itemId,
  call_id: callId,
  action: z
    .object({
      type: z.literal("exec").default("exec"),
      command: list(commandLine, { max: 10_000 }),
      env: map(z.string().max(256), commandLine, { max: 1_000 }).nullish(),
      timeout_ms: milliseconds,
      user: z.string().max(256).nullish(),
      working_directory: z.string().max(4096).nullish(),
    })
    .transform((action) => ({ ...action, env: action.env ?? {} })),
  status: itemStatus,
}).transform(normal("type id call_id action status", COMPLETED));

export const localShellCall = {
  prefix: "lsh",
  kind: "call",
  input: call,
  output: () =>
    answered("local_shell_call", {
      call_id: z.string(),
      action: z.object({
        type: z.literal("exec"),
        command: z.array(z.string()),
        env: z.record(z.string(), z.string()),
        timeout_ms: z.int().nullish(),
        user: z.string().nullish(),
        working_directory: z.string().nullish(),
      }),
      status: status(),
    }),
  events: {},
  called({ call_id, action: { type: _, env, ...action } }: z.output<typeof call>): ClientCall {
    const args = { ...action, ...(Object.keys(env).length > 0 && { env }) };
    return { call_id, flatName: "local_shell", arguments: withoutNulls(args) };
  },
} as const satisfies ItemType;

const answer = given("local_shell_call_output", {
  id: itemId,
  call_id: callId.nullish(),
  output: text,
  status: itemStatus,
}).superRefine((output, context) => {
  if (output.call_id == null && output.id == null) missing(context, "id");
});

const form = normal("type id call_id output status", { call_id: "" }, COMPLETED);

export const localShellCallOutput = {
  prefix: "lsho",
  kind: "output",
  /** OpenAI's `id` is the call's; this server stores it as `call_id`, and has ids of its own. */
  input: answer.transform(({ id, call_id, ...output }) =>
    form({ ...output, id: call_id == null ? undefined : id, call_id: call_id ?? id }),
  ),
  output: () => answeredOutput("local_shell_call_output", { output: z.string() }),
  events: {},
  answer: (item: ClientOutput) => item,
} as const satisfies ItemType;
