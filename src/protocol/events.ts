import type {
  ResponseErrorEvent,
  ResponseOutputItemAddedEvent,
  ResponseOutputItemDoneEvent,
  ResponseStreamEvent,
} from "openai/resources/responses/responses";
import type { OutputItem, ResponseObject } from "./response.ts";

/**
 * The events that a turn can say. Their types are OpenAI's (`ResponseStreamEvent` of the openai package); what this
 * server adds to one of them is declared here. Of vLLM's own events it says none: where those differ, OpenAI's hold.
 */

/** Events that carry the whole response. */
export type LifecycleType =
  | "response.created"
  | "response.queued"
  | "response.in_progress"
  | "response.completed"
  | "response.failed"
  | "response.incomplete";

/** Events that carry one piece of a text. */
export type DeltaType =
  | "response.output_text.delta"
  | "response.refusal.delta"
  | "response.reasoning_text.delta"
  | "response.reasoning_summary_text.delta"
  | "response.function_call_arguments.delta"
  | "response.custom_tool_call_input.delta"
  | "response.mcp_call_arguments.delta"
  | "response.code_interpreter_call_code.delta";

/** Events about one item or one of its parts, with nothing of this server's own in them. */
type PlainType =
  | "response.content_part.added"
  | "response.content_part.done"
  | "response.output_text.done"
  | "response.output_text.annotation.added"
  | "response.refusal.done"
  | "response.reasoning_text.done"
  | "response.compaction.compacting"
  | "response.reasoning_summary_part.added"
  | "response.reasoning_summary_part.done"
  | "response.reasoning_summary_text.done"
  | "response.custom_tool_call_input.done"
  | "response.shell_call_command.added"
  | "response.shell_call_command.delta"
  | "response.shell_call_command.done"
  | "response.mcp_list_tools.in_progress"
  | "response.mcp_list_tools.completed"
  | "response.mcp_list_tools.failed"
  | "response.mcp_call_arguments.done"
  | "response.mcp_call.in_progress"
  | "response.mcp_call.completed"
  | "response.mcp_call.failed"
  | "response.web_search_call.in_progress"
  | "response.web_search_call.searching"
  | "response.web_search_call.completed"
  | "response.code_interpreter_call.in_progress"
  | "response.code_interpreter_call_code.done"
  | "response.code_interpreter_call.interpreting"
  | "response.code_interpreter_call.completed";

type OpenAIEvent<T extends ResponseStreamEvent["type"]> = Extract<ResponseStreamEvent, { type: T }>;

/** While the model server is waited for, `recovery` tells since when and until when, in Unix seconds. */
export interface LifecycleEvent {
  type: LifecycleType;
  sequence_number: number;
  response: ResponseObject & { recovery?: { down_since: number; gives_up_at: number } };
}

/** The name stands in OpenAI's documentation, not in its package. */
type FunctionArgumentsDone = OpenAIEvent<"response.function_call_arguments.done"> & { name: string };

/** OpenAI's is flat; clients of Chat Completions look for the nested one. */
type ErrorEvent = ResponseErrorEvent & {
  error: { type: string; code: string; message: string; param: string | null };
};

/** An event about one item, or about the failure of all. */
export type ItemEvent =
  | OpenAIEvent<PlainType>
  | (Omit<ResponseOutputItemAddedEvent, "item"> & { item: OutputItem })
  | (Omit<ResponseOutputItemDoneEvent, "item"> & { item: OutputItem })
  | FunctionArgumentsDone
  | ErrorEvent;

export type DeltaEvent = OpenAIEvent<DeltaType>;

/** Every event of a stream. */
export type StreamEvent = LifecycleEvent | DeltaEvent | ItemEvent;

/** An event before it is numbered. */
export type Unnumbered<E> = E extends unknown ? Omit<E, "sequence_number"> : never;
