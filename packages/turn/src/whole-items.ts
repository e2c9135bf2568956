import { agentOf } from "@responses-edge/responses-api/items/multi-agent";
import type { OutputItem } from "@responses-edge/responses-api/items/registry";
import type { EventWriter } from "./output-events.ts";

/**
 * Adds an item that is complete, with the events that it would have had while it was written: readers that put items
 * together from deltas have its text, too. A text is one delta.
 */
export function addWhole(writer: EventWriter, item: OutputItem): void {
  const output_index = writer.addItem(begunOf(item));
  const name = agentOf(item);
  const at = { item_id: item.id, output_index, ...(name !== undefined && { agent: { agent_name: name } }) };
  const say = (type: string, fields: object) => writer.aside({ type, ...at, ...fields });
  switch (item.type) {
    case "message":
      for (const [content_index, part] of item.content.entries()) {
        const isText = part.type === "output_text";
        const type = isText ? "response.output_text" : "response.refusal";
        const [text, logprobs] = isText ? [part.text, { logprobs: part.logprobs ?? [] }] : [part.refusal, {}];
        const empty = isText ? { type: part.type, text: "", annotations: [], logprobs: [] } : { ...part, refusal: "" };
        say("response.content_part.added", { content_index, part: empty });
        if (text !== "") say(`${type}.delta`, { content_index, delta: text, ...logprobs });
        say(`${type}.done`, { content_index, ...(isText ? { text } : { refusal: text }), ...logprobs });
        say("response.content_part.done", { content_index, part });
      }
      break;
    case "reasoning":
      for (const [content_index, part] of (item.content ?? []).entries()) {
        say("response.content_part.added", { content_index, part: { ...part, text: "" } });
        say("response.reasoning_text.delta", { content_index, delta: part.text });
        say("response.reasoning_text.done", { content_index, text: part.text });
        say("response.content_part.done", { content_index, part });
      }
      for (const [summary_index, part] of item.summary.entries()) {
        say("response.reasoning_summary_part.added", { summary_index, part: { ...part, text: "" } });
        say("response.reasoning_summary_text.delta", { summary_index, delta: part.text });
        say("response.reasoning_summary_text.done", { summary_index, text: part.text });
        say("response.reasoning_summary_part.done", { summary_index, part });
      }
      break;
    case "function_call":
      say("response.function_call_arguments.delta", { delta: item.arguments });
      say("response.function_call_arguments.done", { name: item.name, arguments: item.arguments });
      break;
    case "custom_tool_call":
      say("response.custom_tool_call_input.delta", { delta: item.input });
      say("response.custom_tool_call_input.done", { input: item.input });
  }
  writer.emit({ type: "response.output_item.done", output_index, item });
}

/** An item as it is added, before any of its text. */
function begunOf(item: OutputItem): OutputItem {
  const status = "in_progress" as const;
  switch (item.type) {
    case "message":
      return { ...item, status, content: [] };
    case "reasoning":
      return { ...item, status, summary: [], ...(item.content && { content: [] }) };
    case "function_call":
      return { ...item, status, arguments: "" };
    case "custom_tool_call":
      return { ...item, status, input: "" };
    default:
      return item;
  }
}
