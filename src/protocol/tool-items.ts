import { z } from "zod";
import { list, map } from "./collections.ts";
import { caller, callId, itemId, itemStatus, text, toolOutput, withCaller, withId } from "./item-parts.ts";
import { reasoningEffort, textFormat } from "./output-settings.ts";
import { notAsync } from "./tool-fields.ts";
import { loadedTools } from "./tools.ts";

/** Items of the tools that the client runs: their calls, their outputs, and what brings tools and other settings. */

const name = z.string().min(1).max(128);

function withNamespace(namespace: string | null | undefined): { namespace?: string } {
  return namespace == null ? {} : { namespace };
}

const functionCall = z
  .object({
    type: z.literal("function_call"),
    call_id: callId,
    name,
    namespace: name.nullish(),
    arguments: text,
    id: itemId,
    status: itemStatus,
    caller,
    async: notAsync,
  })
  .transform((call) => ({
    type: call.type,
    ...withId(call.id),
    ...withCaller(call.caller),
    call_id: call.call_id,
    name: call.name,
    ...withNamespace(call.namespace),
    arguments: call.arguments,
    status: call.status ?? ("completed" as const),
  }));

/** Without a `call_id` the call is found by its name (`matchOutputs`); until then the id is empty. */
const functionCallOutput = z
  .object({
    type: z.literal("function_call_output"),
    call_id: callId.nullish(),
    name: name.nullish(),
    namespace: name.nullish(),
    output: toolOutput,
    id: itemId,
    status: itemStatus,
    caller,
  })
  .transform((output, context) => {
    if (output.call_id == null && output.name == null) {
      context.addIssue({
        code: "custom",
        path: ["call_id"],
        message: "Missing required parameter: 'call_id'. Without it, 'name' is to tell which function was called.",
        params: { code: "missing_required_parameter" },
      });
    }
    return {
      type: output.type,
      ...withId(output.id),
      ...withCaller(output.caller),
      call_id: output.call_id ?? "",
      ...(output.call_id == null && { name: output.name ?? "", ...withNamespace(output.namespace) }),
      output: output.output,
      status: "completed" as const,
    };
  });

const customToolCall = z
  .object({
    type: z.literal("custom_tool_call"),
    call_id: callId,
    name,
    namespace: name.nullish(),
    input: text,
    id: itemId,
    status: itemStatus,
    caller,
    async: notAsync,
  })
  .transform((call) => ({
    type: call.type,
    ...withId(call.id),
    ...withCaller(call.caller),
    status: call.status ?? ("completed" as const),
    call_id: call.call_id,
    name: call.name,
    ...withNamespace(call.namespace),
    input: call.input,
  }));

const customToolCallOutput = z
  .object({
    type: z.literal("custom_tool_call_output"),
    call_id: callId,
    output: toolOutput,
    id: itemId,
    status: itemStatus,
    caller,
  })
  .transform((output) => ({
    type: output.type,
    ...withId(output.id),
    ...withCaller(output.caller),
    call_id: output.call_id,
    output: output.output,
    status: "completed" as const,
  }));

const execution = z.enum(["server", "client"]).nullish();

const toolSearchCall = z
  .object({
    type: z.literal("tool_search_call"),
    id: itemId,
    call_id: callId.nullish(),
    execution,
    arguments: z.unknown(),
    status: itemStatus,
  })
  .transform((call) => ({
    type: call.type,
    ...withId(call.id),
    call_id: call.call_id ?? null,
    execution: call.execution ?? executionOf(call.call_id),
    arguments: call.arguments ?? {},
    status: call.status ?? ("completed" as const),
  }));

const toolSearchOutput = z
  .object({
    type: z.literal("tool_search_output"),
    id: itemId,
    call_id: callId.nullish(),
    execution,
    tools: loadedTools,
    status: itemStatus,
  })
  .transform((output) => ({
    type: output.type,
    ...withId(output.id),
    call_id: output.call_id ?? null,
    execution: output.execution ?? executionOf(output.call_id),
    status: "completed" as const,
    tools: output.tools,
  }));

/** Only a client's call has an id by which it is answered. */
function executionOf(call: string | null | undefined): "server" | "client" {
  return call == null ? "server" : "client";
}

const milliseconds = z.int().min(0).nullish();
const line = z.string().max(1_048_576);

const localShellCall = z
  .object({
    type: z.literal("local_shell_call"),
    id: itemId,
    call_id: callId,
    action: z.object({
      type: z.literal("exec").default("exec"),
      command: list(line, { max: 10_000 }),
      env: map(z.string().max(256), line, { max: 1_000 }).nullish(),
      timeout_ms: milliseconds,
      user: z.string().max(256).nullish(),
      working_directory: z.string().max(4096).nullish(),
    }),
    status: itemStatus,
  })
  .transform((call) => ({
    type: call.type,
    ...withId(call.id),
    call_id: call.call_id,
    action: { ...call.action, env: call.action.env ?? {} },
    status: call.status ?? ("completed" as const),
  }));

/** OpenAI's `id` is the call's; this server keeps it as `call_id`, and has ids of its own. */
const localShellCallOutput = z
  .object({
    type: z.literal("local_shell_call_output"),
    id: itemId,
    call_id: callId.nullish(),
    output: text,
    status: itemStatus,
  })
  .transform((output, context) => {
    const call = output.call_id ?? output.id;
    if (call == null) {
      context.addIssue({
        code: "custom",
        path: ["id"],
        message: "Missing required parameter: 'id'.",
        params: { code: "missing_required_parameter" },
      });
    }
    return {
      type: output.type,
      ...(output.call_id != null && withId(output.id)),
      call_id: call ?? "",
      output: output.output,
      status: "completed" as const,
    };
  });

const shellCall = z
  .object({
    type: z.literal("shell_call"),
    id: itemId,
    call_id: callId,
    action: z.object({
      commands: list(line, { max: 1_000 }),
      timeout_ms: milliseconds,
      max_output_length: z.int().min(0).nullish(),
    }),
    environment: z.looseObject({ type: z.string().max(64) }).nullish(),
    status: itemStatus,
    caller,
  })
  .transform((call) => ({
    type: call.type,
    ...withId(call.id),
    ...withCaller(call.caller),
    call_id: call.call_id,
    action: {
      commands: call.action.commands,
      timeout_ms: call.action.timeout_ms ?? null,
      max_output_length: call.action.max_output_length ?? null,
    },
    environment: call.environment?.type === "local" ? { type: "local" as const } : null,
    status: call.status ?? ("completed" as const),
  }));

/** How a shell command has ended. */
export const shellOutcome = z.discriminatedUnion("type", [
  z.object({ type: z.literal("exit"), exit_code: z.int() }),
  z.object({ type: z.literal("timeout") }),
]);

const shellCallOutput = z
  .object({
    type: z.literal("shell_call_output"),
    id: itemId,
    call_id: callId,
    output: list(
      z.object({
        stdout: text,
        stderr: text,
        outcome: shellOutcome,
      }),
      { max: 1_000 },
    ),
    max_output_length: z.int().min(0).nullish(),
    status: itemStatus,
    caller,
  })
  .transform((output) => ({
    type: output.type,
    ...withId(output.id),
    ...withCaller(output.caller),
    call_id: output.call_id,
    output: output.output,
    max_output_length: output.max_output_length ?? null,
    status: "completed" as const,
  }));

const path = z.string().min(1).max(4096);

export const patchOperation = z.discriminatedUnion("type", [
  z.object({ type: z.literal("create_file"), path, diff: text }),
  z.object({ type: z.literal("update_file"), path, diff: text }),
  z.object({ type: z.literal("delete_file"), path }),
]);

const applyPatchCall = z
  .object({
    type: z.literal("apply_patch_call"),
    id: itemId,
    call_id: callId,
    operation: patchOperation,
    status: itemStatus,
    caller,
  })
  .transform((call) => ({
    type: call.type,
    ...withId(call.id),
    ...withCaller(call.caller),
    call_id: call.call_id,
    operation: call.operation,
    status: "completed" as const,
  }));

const applyPatchCallOutput = z
  .object({
    type: z.literal("apply_patch_call_output"),
    id: itemId,
    call_id: callId,
    status: z.enum(["completed", "failed"]),
    output: text.nullish(),
    caller,
  })
  .transform((output) => ({
    type: output.type,
    ...withId(output.id),
    ...withCaller(output.caller),
    call_id: output.call_id,
    status: output.status,
    output: output.output ?? null,
  }));

/** More tools from there on. */
const additionalTools = z
  .object({
    type: z.literal("additional_tools"),
    id: itemId,
    role: z.literal("developer").nullish(),
    tools: loadedTools,
  })
  .transform(({ type, id, tools }) => ({ type, ...withId(id), role: "developer" as const, tools }));

/** Settings that hold from there on, until the next of them. */
const configurationUpdate = z
  .object({
    type: z.literal("configuration_update"),
    id: itemId,
    reasoning: z.object({ effort: reasoningEffort.nullish() }).nullish(),
    text: z.object({ format: textFormat }).nullish(),
  })
  .transform(({ type, id, reasoning, text: output }) => ({
    type,
    ...withId(id),
    ...(reasoning?.effort != null && { reasoning: { effort: reasoning.effort } }),
    ...(output != null && { text: { format: output.format } }),
  }));

/** The members of the union of items. */
export const toolItems = [
  functionCall,
  functionCallOutput,
  customToolCall,
  customToolCallOutput,
  toolSearchCall,
  toolSearchOutput,
  localShellCall,
  localShellCallOutput,
  shellCall,
  shellCallOutput,
  applyPatchCall,
  applyPatchCallOutput,
  additionalTools,
  configurationUpdate,
] as const;
