import type { RawMessage } from "../contract/engine.ts";
import { Compactions } from "./compactions.ts";
import type { Outcome } from "./decide.ts";
import type { TurnOptions } from "./options.ts";
import { EventWriter } from "./output-events.ts";
import { OutputSize } from "./output-size.ts";
import { PluginCalls } from "./plugin-calls.ts";
import { RawMessages } from "./raw-messages.ts";
import { type ClosedResponse, TurnResponse } from "./response.ts";
import { type RoundOptions, RoundOutput } from "./round-output.ts";
import { newTurnState, type TurnState } from "./state.ts";
import { ToolLists } from "./tool-lists.ts";

/**
 * All that a turn puts out: OpenAI's events, and the items of the final body.
 *
 * What the model says becomes items in `round`; every other kind of item has a class of its own, which knows what of it is
 * open. Stream, body and store have the same item objects, so their ids and texts cannot differ. The order of events is
 * that of the strictest public reader, openai-node's `ResponseStream`.
 */

export interface OutputOptions extends RoundOptions, Pick<TurnOptions, "past" | "bounds" | "host"> {}

export class TurnOutput {
  readonly state: TurnState;
  readonly writer: EventWriter;
  readonly size: OutputSize;
  readonly response: TurnResponse;
  readonly messages: RawMessages;
  readonly lists: ToolLists;
  readonly compactions: Compactions;
  /** Calls of this server's tools. */
  readonly calls: PluginCalls;
  /** What the model says. */
  readonly round: RoundOutput;

  /** A turn that was cut off goes on from its `logged` state. */
  constructor(options: OutputOptions, logged?: TurnState) {
    const { asked, past, bounds, host } = options;
    const { request, address } = asked;
    const state = logged ?? newTurnState();
    const withMessages = request.enable_response_messages === true;
    this.state = state;
    this.writer = new EventWriter(state, {
      address,
      sink: host.sink,
      obfuscation: request.stream_options?.include_obfuscation ?? true,
    });
    this.size = new OutputSize(state, { limit: bounds.outputLength, withMessages });
    this.response = new TurnResponse(state, this.writer, options);
    this.messages = new RawMessages(state, this.response.object, this.size, {
      previous: request.previous_input_messages ?? undefined,
      firstInput: past.input[0]?.id,
    });
    this.lists = new ToolLists(this);
    this.compactions = new Compactions(this);
    this.calls = new PluginCalls(this, options);
    this.round = new RoundOutput(this, options);
  }

  /** The generation is over, and its calls are to be answered; then the model is asked `again` with these messages. */
  beginAnswering(again: RawMessage[]): void {
    this.writer.record({
      answering: {
        items: this.state.output.length,
        ...this.messages.left,
        usage: this.response.usage,
        calls: this.calls.pending,
        again,
      },
    });
    this.messages.beginRound();
  }

  /** Begins the next round. */
  nextRound(): void {
    const { trailing, answering } = this.state;
    const again = answering?.again ?? [];
    this.messages.addAnswer(again);
    this.writer.record({ round: { trailing: [...trailing, ...again] } });
    this.messages.beginRound();
    this.round.begin();
  }

  /** The model is asked again in the same round. `isCounted`: it was at fault. */
  askAgain(isCounted: boolean): void {
    if (isCounted) this.writer.record({ asked_again: true });
    this.messages.askAgain();
    this.round.begin();
  }

  /** The compaction is done: `content` stands for the prompt from now on. */
  endCompaction(content: string): void {
    this.compactions.end(content);
    this.messages.beginRound();
  }

  /**
   * Ends every open item and settles the response; no terminal event yet, because what is settled must be stored
   * before anybody is told. May be called again with another outcome when storing failed.
   */
  close(outcome: Outcome): ClosedResponse {
    const isSilent = outcome.status === "failed" || outcome.status === "cancelled";
    this.round.close(outcome.status !== "completed", isSilent);
    this.calls.close(isSilent);
    this.lists.closeUnfinished();
    return this.response.close(outcome, this.messages.replays);
  }
}
