import { z } from "zod";
import type { itemSchemas } from "./items.ts";

/** The events of a stream, as `protocol/events.ts` declares their types. */

/** Makes the schemas. `response` is the whole response, as the events of its life carry it. */
export function eventSchemas<Response extends z.ZodType>(items: ReturnType<typeof itemSchemas>, response: Response) {
  const { OutputItem, OutputText, Refusal, ReasoningText, SummaryText, UrlCitation, Logprob } = items;
  const text = z.string();
  const at = { sequence_number: z.int().min(0), output_index: z.int().min(0) };
  const inItem = { item_id: text, ...at };
  const inContent = { ...inItem, content_index: z.int().min(0) };
  const inSummary = { ...inItem, summary_index: z.int().min(0) };
  const inCommand = { ...at, command_index: z.int().min(0) };
  const event = <const Type extends string, Shape extends z.ZodRawShape>(type: Type, shape: Shape) =>
    z.object({ type: z.literal(type), ...shape });
  // Padding that hides the length of a delta (`stream_options.include_obfuscation`).
  const delta = { delta: text, obfuscation: text.optional() };
  const part = z.discriminatedUnion("type", [OutputText, Refusal, ReasoningText]);
  const { sequence_number } = at;
  const life = <const Type extends string>(type: Type) => event(type, { sequence_number, response });

  return z.discriminatedUnion("type", [
    life("response.created"),
    life("response.queued"),
    life("response.in_progress"),
    life("response.completed"),
    life("response.failed"),
    life("response.incomplete"),
    event("response.output_item.added", { ...at, item: OutputItem }),
    event("response.output_item.done", { ...at, item: OutputItem }),
    event("response.content_part.added", { ...inContent, part }),
    event("response.content_part.done", { ...inContent, part }),
    event("response.output_text.delta", { ...inContent, ...delta, logprobs: z.array(Logprob) }),
    event("response.output_text.done", { ...inContent, text, logprobs: z.array(Logprob) }),
    event("response.output_text.annotation.added", {
      ...inContent,
      annotation_index: z.int().min(0),
      annotation: UrlCitation,
    }),
    event("response.refusal.delta", { ...inContent, ...delta }),
    event("response.refusal.done", { ...inContent, refusal: text }),
    event("response.reasoning_text.delta", { ...inContent, ...delta }),
    event("response.reasoning_text.done", { ...inContent, text }),
    event("response.reasoning_summary_part.added", { ...inSummary, part: SummaryText }),
    event("response.reasoning_summary_part.done", { ...inSummary, part: SummaryText }),
    event("response.reasoning_summary_text.delta", { ...inSummary, ...delta }),
    event("response.reasoning_summary_text.done", { ...inSummary, text }),
    event("response.function_call_arguments.delta", { ...inItem, ...delta }),
    event("response.function_call_arguments.done", { ...inItem, name: text, arguments: text }),
    event("response.custom_tool_call_input.delta", { ...inItem, ...delta }),
    event("response.custom_tool_call_input.done", { ...inItem, input: text }),
    event("response.shell_call_command.added", { ...inCommand, command: text }),
    event("response.shell_call_command.delta", { ...inCommand, ...delta }),
    event("response.shell_call_command.done", { ...inCommand, command: text }),
    event("response.mcp_list_tools.in_progress", inItem),
    event("response.mcp_list_tools.completed", inItem),
    event("response.mcp_list_tools.failed", inItem),
    event("response.mcp_call_arguments.delta", { ...inItem, ...delta }),
    event("response.mcp_call_arguments.done", { ...inItem, arguments: text }),
    event("response.mcp_call.in_progress", inItem),
    event("response.mcp_call.completed", inItem),
    event("response.mcp_call.failed", inItem),
    event("response.web_search_call.in_progress", inItem),
    event("response.web_search_call.searching", inItem),
    event("response.web_search_call.completed", inItem),
    event("response.code_interpreter_call.in_progress", inItem),
    event("response.code_interpreter_call_code.delta", { ...inItem, ...delta }),
    event("response.code_interpreter_call_code.done", { ...inItem, code: text }),
    event("response.code_interpreter_call.interpreting", inItem),
    event("response.code_interpreter_call.completed", inItem),
    event("response.compaction.compacting", inItem),
    event("error", {
      sequence_number,
      code: text.nullable(),
      message: text,
      param: text.nullable(),
      error: z.object({ type: text, code: text, message: text, param: text.nullable() }),
    }),
  ]);
}
