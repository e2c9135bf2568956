import { z } from "zod";
import { caller as callerField, inputPart, toolOutput } from "../../protocol/item-parts.ts";
import { FOREIGN_ITEM_TYPES } from "../../protocol/items.ts";
import { reasoningEffort, textFormat } from "../../protocol/output-settings.ts";
import { patchOperation, shellOutcome } from "../../protocol/tool-items.ts";
import { tool } from "../../protocol/tools.ts";

/** Items as they are answered: with an id, and with all that requests may leave out. Types: `ResponseOutputItem` of the openai package. */

/** Makes the schemas. A function, so that an isolate which nobody asks for its description does not make them. */
export function itemSchemas() {
  const id = z.string();
  const status = z.enum(["in_progress", "completed", "incomplete"]);
  const text = z.string();
  const caller = callerField.unwrap().unwrap().optional();

  const UrlCitation = z.object({
    type: z.literal("url_citation"),
    url: text,
    title: text,
    start_index: z.int(),
    end_index: z.int(),
  });
  const TopLogprob = z.object({ token: text, logprob: z.number(), bytes: z.array(z.int()) });
  const Logprob = TopLogprob.extend({ top_logprobs: z.array(TopLogprob) });
  const OutputText = z.object({
    type: z.literal("output_text"),
    text,
    annotations: z.array(UrlCitation),
    logprobs: z.array(Logprob).optional(),
  });
  const Refusal = z.object({ type: z.literal("refusal"), refusal: text });
  const ReasoningText = z.object({ type: z.literal("reasoning_text"), text });
  const SummaryText = z.object({ type: z.literal("summary_text"), text });

  const OutputMessage = z.object({
    type: z.literal("message"),
    id,
    status,
    role: z.literal("assistant"),
    content: z.array(z.discriminatedUnion("type", [OutputText, Refusal])),
    phase: z.enum(["commentary", "final_answer"]).nullish(),
  });
  const ReasoningItem = z.object({
    type: z.literal("reasoning"),
    id,
    summary: z.array(SummaryText),
    content: z.array(ReasoningText).optional(),
    encrypted_content: text.nullish(),
    status: status.optional(),
  });
  const FunctionCall = z.object({
    type: z.literal("function_call"),
    id,
    call_id: text,
    name: text,
    namespace: text.optional(),
    arguments: text,
    status,
    caller,
  });
  const CustomToolCall = z.object({
    type: z.literal("custom_tool_call"),
    id,
    call_id: text,
    name: text,
    namespace: text.optional(),
    input: text,
    status,
    caller,
  });
  const execution = z.enum(["server", "client"]);
  const ToolSearchCall = z.object({
    type: z.literal("tool_search_call"),
    id,
    call_id: text.nullable(),
    execution,
    arguments: z.unknown(),
    status,
  });
  const ToolSearchOutput = z.object({
    type: z.literal("tool_search_output"),
    id,
    call_id: text.nullable(),
    execution,
    tools: z.array(tool),
    status,
  });
  const LocalShellCall = z.object({
    type: z.literal("local_shell_call"),
    id,
    call_id: text,
    action: z.object({
      type: z.literal("exec"),
      command: z.array(text),
      env: z.record(text, text),
      timeout_ms: z.int().nullish(),
      user: text.nullish(),
      working_directory: text.nullish(),
    }),
    status,
  });
  const ShellCall = z.object({
    type: z.literal("shell_call"),
    id,
    call_id: text,
    action: z.object({
      commands: z.array(text),
      timeout_ms: z.int().nullable(),
      max_output_length: z.int().nullable(),
    }),
    environment: z.object({ type: z.literal("local") }).nullable(),
    status,
    caller,
  });
  const ApplyPatchCall = z.object({
    type: z.literal("apply_patch_call"),
    id,
    call_id: text,
    operation: patchOperation,
    status: z.enum(["in_progress", "completed"]),
    caller,
  });
  const McpCall = z.object({
    type: z.literal("mcp_call"),
    id,
    server_label: text,
    name: text,
    arguments: text,
    approval_request_id: text.nullish(),
    output: text.nullish(),
    error: z.unknown().optional(),
    status: z.enum(["in_progress", "completed", "incomplete", "calling", "failed"]).optional(),
  });
  const McpListTools = z.object({
    type: z.literal("mcp_list_tools"),
    id,
    server_label: text,
    tools: z.array(
      z.object({
        name: text,
        description: text.nullish(),
        input_schema: z.unknown(),
        annotations: z.unknown().optional(),
      }),
    ),
    error: z.unknown().optional(),
  });
  const McpApprovalRequest = z.object({
    type: z.literal("mcp_approval_request"),
    id,
    server_label: text,
    name: text,
    arguments: text,
  });
  const WebSearchCall = z.object({
    type: z.literal("web_search_call"),
    id,
    action: z.discriminatedUnion("type", [
      z.object({
        type: z.literal("search"),
        query: text.optional(),
        queries: z.array(text).optional(),
        sources: z.array(z.object({ type: z.literal("url"), url: text })).optional(),
      }),
      z.object({ type: z.literal("open_page"), url: text.nullish() }),
      z.object({ type: z.literal("find_in_page"), pattern: text, url: text }),
    ]),
    status: z.enum(["in_progress", "searching", "completed", "failed", "incomplete"]),
  });
  const CodeInterpreterCall = z.object({
    type: z.literal("code_interpreter_call"),
    id,
    code: text.nullable(),
    container_id: text,
    outputs: z
      .array(
        z.discriminatedUnion("type", [
          z.object({ type: z.literal("logs"), logs: text }),
          z.object({ type: z.literal("image"), url: text }),
        ]),
      )
      .nullable(),
    status: z.enum(["in_progress", "completed", "incomplete", "interpreting", "failed"]),
  });
  const Compaction = z.object({ type: z.literal("compaction"), id, encrypted_content: text });
  const OutputItem = z.discriminatedUnion("type", [
    OutputMessage,
    ReasoningItem,
    FunctionCall,
    CustomToolCall,
    ToolSearchCall,
    ToolSearchOutput,
    LocalShellCall,
    ShellCall,
    ApplyPatchCall,
    McpCall,
    McpListTools,
    McpApprovalRequest,
    WebSearchCall,
    CodeInterpreterCall,
    Compaction,
  ]);

  const completed = z.literal("completed");
  const StoredMessage = z.object({
    type: z.literal("message"),
    id,
    role: z.enum(["user", "system", "developer"]),
    status,
    content: z.array(inputPart),
  });
  const answered = { id, call_id: text, status: completed };
  /** What of an input is kept that no output has. */
  const StoredInput = z.union([
    StoredMessage,
    z.object({ type: z.literal("function_call_output"), ...answered, output: toolOutput, caller }),
    z.object({ type: z.literal("custom_tool_call_output"), ...answered, output: toolOutput, caller }),
    z.object({ type: z.literal("local_shell_call_output"), ...answered, output: text }),
    z.object({
      type: z.literal("shell_call_output"),
      ...answered,
      output: z.array(
        z.object({
          stdout: text,
          stderr: text,
          outcome: shellOutcome,
        }),
      ),
      max_output_length: z.int().nullable(),
      caller,
    }),
    z.object({
      type: z.literal("apply_patch_call_output"),
      id,
      call_id: text,
      status: z.enum(["completed", "failed"]),
      output: text.nullable(),
      caller,
    }),
    z.object({
      type: z.literal("mcp_approval_response"),
      id,
      approval_request_id: text,
      approve: z.boolean(),
      reason: text.nullable(),
    }),
    z.object({ type: z.literal("additional_tools"), id, role: z.literal("developer"), tools: z.array(tool) }),
    z.object({
      type: z.literal("configuration_update"),
      id,
      reasoning: z.object({ effort: reasoningEffort }).optional(),
      text: z.object({ format: textFormat }).optional(),
    }),
    // Kept as they came: items of tools that are OpenAI's alone.
    z.looseObject({ type: z.enum(FOREIGN_ITEM_TYPES), id }),
  ]);
  /** An item of a conversation, or of a response's input. */
  const Item = z.union([OutputItem, StoredInput]);

  return {
    UrlCitation,
    TopLogprob,
    Logprob,
    OutputText,
    Refusal,
    ReasoningText,
    SummaryText,
    OutputMessage,
    ReasoningItem,
    FunctionCall,
    CustomToolCall,
    ToolSearchCall,
    ToolSearchOutput,
    LocalShellCall,
    ShellCall,
    ApplyPatchCall,
    McpCall,
    McpListTools,
    McpApprovalRequest,
    WebSearchCall,
    CodeInterpreterCall,
    Compaction,
    OutputItem,
    StoredInput,
    Item,
  };
}
