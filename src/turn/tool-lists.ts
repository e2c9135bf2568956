import type { ListedTools } from "../contract/tool-session.ts";
import type { OutputParts } from "./output-size.ts";

/** `mcp_list_tools` items: what an MCP server has to offer, listed before the model is asked. */
export class ToolLists {
  readonly #output: OutputParts;

  constructor(output: OutputParts) {
    this.#output = output;
  }

  /** Begins to list the tools of a server, or goes on with a list that a crash has cut off. Gives its `output_index`. */
  begin(label: string): number {
    const open = this.#output.state.openLists.find((index) => {
      const item = this.#output.state.output[index];
      return item?.type === "mcp_list_tools" && item.server_label === label;
    });
    if (open !== undefined) return open;
    const id = this.#output.writer.newItemId("mcp_list_tools");
    const output_index = this.#output.writer.addItem({ id, type: "mcp_list_tools", server_label: label, tools: [] });
    this.#output.writer.emit({ type: "response.mcp_list_tools.in_progress", item_id: id, output_index });
    return output_index;
  }

  /** The tools are listed, or cannot be. `origin` is what the list depends on, for turns that might use it again. */
  end(index: number, listed: ListedTools, origin: string): void {
    const item = this.#output.state.output[index];
    if (item?.type !== "mcp_list_tools") return;
    const kept = this.#output.size.fits(listed)
      ? listed
      : { error: "The tools are too many to be kept with the response." };
    if ("tools" in kept) item.tools = kept.tools;
    else item.error = kept.error;
    this.#output.size.addFrames(1);
    this.#output.size.addJson(JSON.stringify(kept).length + origin.length);
    this.#output.writer.record({ listed: { item: item.id, messages: [], origin } });
    const type = `response.mcp_list_tools.${"tools" in kept ? "completed" : "failed"}` as const;
    this.#output.writer.emit({ type, item_id: item.id, output_index: index });
    this.#output.writer.emit({ type: "response.output_item.done", output_index: index, item });
  }

  /** Ends the lists that were cut off, each as none: a later turn is to make it anew. No event says so. */
  closeUnfinished(): void {
    for (const item of this.#output.state.output) {
      if (item.type !== "mcp_list_tools" || item.error != null) continue;
      if (this.#output.state.replays.some((replay) => replay.item === item.id)) continue;
      item.error = "The tools of this server were not listed to the end.";
    }
  }
}
