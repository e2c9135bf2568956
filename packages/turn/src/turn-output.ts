import { ROOT_AGENT } from "@responses-edge/responses-api/items/multi-agent";
import type { RawMessage } from "./contract/engine.ts";
import type { ListedTools } from "./contract/tool-session.ts";
import type { Outcome } from "./decide.ts";
import { ModelOutput, type RoundOptions } from "./model-output.ts";
import type { TurnOptions } from "./options.ts";
import { EventWriter, FRAME_LENGTH, type OutputParts, OutputSize } from "./output-events.ts";
import { PluginCallItems } from "./plugin-call-items.ts";
import { RawMessages } from "./raw-messages.ts";
import { type ClosedResponse, TurnResponse } from "./response.ts";
import { newTurnState, openCompaction, type TurnState } from "./state.ts";

/**
 * The whole output of a turn: OpenAI's events, and the items of the final body.
 *
 * `round` makes items of the model's text, and `calls` of hosted tools' calls; lists of tools and compactions are made
 * here. Stream, body and store have the same item objects, so that their ids and texts cannot differ. The order of
 * events is that of the strictest public reader, openai-node's `ResponseStream`.
 */

interface OutputOptions extends RoundOptions, Pick<TurnOptions, "past" | "bounds" | "host"> {}

export class TurnOutput {
  readonly state: TurnState;
  readonly writer: EventWriter;
  readonly size: OutputSize;
  readonly response: TurnResponse;
  readonly messages: RawMessages;
  readonly fingerprint: OutputParts["fingerprint"];
  /** Calls of hosted tools. */
  readonly calls: PluginCallItems;
  /** The model's text and its calls for the client. */
  readonly round: ModelOutput;

  /** A turn that was cut off continues from its `logged` state. */
  constructor(options: OutputOptions, logged?: TurnState) {
    const { asked, past, bounds, host } = options;
    const { request, address } = asked;
    const state = logged ?? newTurnState();
    const withMessages = request.enable_response_messages === true;
    this.state = state;
    this.fingerprint = (program) => options.secrets.programs.make(program, host.clock());
    this.writer = new EventWriter(state, {
      address,
      sink: host.sink,
      clock: host.clock,
      obfuscation: request.stream_options?.include_obfuscation ?? true,
      agent: request.multi_agent?.enabled && !asked.isTask ? ROOT_AGENT : undefined,
    });
    this.size = new OutputSize(state, { limit: bounds.outputLength, withMessages });
    this.response = new TurnResponse(state, this.writer, options);
    this.messages = new RawMessages(state, this.response.object, this.size, {
      previous: request.previous_input_messages ?? undefined,
      firstInput: past.input[0]?.id,
    });
    this.calls = new PluginCallItems(this, options);
    this.round = new ModelOutput(this, options);
  }

  /** Ends the generation, whose calls are to be answered; then the model is asked `again` with these messages. */
  beginAnswering(again: RawMessage[]): void {
    this.writer.record({
      answering: {
        ...this.messages.left,
        usage: this.response.object.usage,
        calls: [...this.calls.pending.values()],
        again,
      },
    });
    this.messages.beginRound();
  }

  /** Begins the next round. */
  nextRound(): void {
    const { trailing, answering } = this.state;
    const again = answering?.again ?? [];
    if (again.length > 0) this.messages.addAnswer(again);
    this.writer.record({ round: { trailing: [...trailing, ...again] } });
    this.messages.beginRound();
    this.round.begin();
  }

  /** Asks the model again in the same round. `isCounted`: the model made a mistake. */
  askAgain(isCounted: boolean): void {
    if (isCounted) this.writer.record({ asked_again: true });
    this.messages.askAgain();
    this.round.begin();
  }

  /**
   * Begins to list the tools of an MCP server, or continues a list that a crash has cut off. Gives its `output_index`.
   */
  beginList(label: string): number {
    const { state, writer } = this;
    const open = state.openLists.find((index) => {
      const item = state.output[index];
      return item?.type === "mcp_list_tools" && item.server_label === label;
    });
    if (open !== undefined) return open;
    const id = writer.newItemId("mcp_list_tools");
    const output_index = writer.addItem({ id, type: "mcp_list_tools", server_label: label, tools: [] });
    writer.emit({ type: "response.mcp_list_tools.in_progress", item_id: id, output_index });
    return output_index;
  }

  /**
   * Ends a list of tools, or its failure. `origin` identifies the inputs of the list, for turns that might use it
   * again.
   */
  endList(index: number, listed: ListedTools, origin: string): void {
    const { state, writer, size } = this;
    const item = state.output[index];
    if (item?.type !== "mcp_list_tools") return;
    const kept = size.fits(listed) ? listed : { error: "The tools are too many to store with the response." };
    if ("tools" in kept) item.tools = kept.tools;
    else item.error = kept.error;
    size.length += FRAME_LENGTH + JSON.stringify(kept).length + origin.length;
    writer.record({ listed: { item: item.id, messages: [], origin } });
    const type = `response.mcp_list_tools.${"tools" in kept ? "completed" : "failed"}` as const;
    writer.emit({ type, item_id: item.id, output_index: index });
    writer.emit({ type: "response.output_item.done", output_index: index, item });
  }

  /**
   * Begins a compaction, or continues one that a crash has cut off. Called at the first words of its summary: OpenAI's
   * event is "emitted when new summary content is sampled".
   */
  beginCompaction(): void {
    if (openCompaction(this.state) !== undefined) return;
    const id = this.writer.newItemId("compaction");
    const output_index = this.writer.addItem({ id, type: "compaction", encrypted_content: "" });
    this.writer.emit({ type: "response.compaction.compacting", item_id: id, output_index });
  }

  /** Ends the compaction: `content` replaces the prompt from now on. */
  endCompaction(content: string): void {
    const output_index = openCompaction(this.state);
    const item = output_index === undefined ? undefined : this.state.output[output_index];
    if (output_index !== undefined && item?.type === "compaction") {
      this.size.length += FRAME_LENGTH + content.length;
      const whole = { ...item, encrypted_content: content };
      this.writer.emit({ type: "response.output_item.done", output_index, item: whole });
    }
    this.messages.beginRound();
  }

  /**
   * Ends every open item and settles the response. Sends no terminal event yet, because the turn must be stored first.
   * May be called again with another outcome if storing failed.
   */
  close(outcome: Outcome): ClosedResponse {
    const isSilent = outcome.status === "failed" || outcome.status === "cancelled";
    this.round.close(outcome.status !== "completed", isSilent);
    this.calls.close(isSilent);
    for (const index of this.state.openLists) {
      const item = this.state.output[index];
      // A list that was cut off has no tools, so that a later turn makes it anew. There is no event.
      if (item?.type === "mcp_list_tools") item.error ??= "The list of this server's tools is incomplete.";
    }
    return this.response.close(outcome, this.messages.replays);
  }
}
