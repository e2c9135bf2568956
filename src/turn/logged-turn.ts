import type { ResponseStreamEvent } from "openai/resources/responses/responses";
import type { TokenLogprob } from "../engine/engine.ts";
import type { OutputItem } from "../protocol/response.ts";

/**
 * What a log of events says of a turn that was cut off: enough to go on where the log ends, so that a reader of the
 * whole sees one stream.
 */
export interface LoggedTurn {
  /** The next sequence number. */
  sequence: number;
  /** `response.in_progress` has been said. */
  started: boolean;
  /** Items so far; those that were not done are `in_progress`, without the open part. */
  output: OutputItem[];
  /** The part that text was flowing into. */
  openPart: OpenPartState | undefined;
  /** Delta events so far: about as many as tokens; and those of them that were reasoning. */
  deltas: number;
  reasoningDeltas: number;
}

export interface OpenPartState {
  kind: "output_text" | "refusal" | "reasoning_text";
  outputIndex: number;
  contentIndex: number;
  text: string;
  logprobs: TokenLogprob[];
}

/** Reads the events of a log, in order, as JSON texts. */
export function readLoggedTurn(events: Iterable<string>): LoggedTurn {
  const turn: LoggedTurn = {
    sequence: 0,
    started: false,
    output: [],
    openPart: undefined,
    deltas: 0,
    reasoningDeltas: 0,
  };
  const texts: string[] = [];
  for (const json of events) {
    const event = JSON.parse(json) as ResponseStreamEvent;
    turn.sequence = event.sequence_number + 1;
    switch (event.type) {
      case "response.in_progress":
        turn.started = true;
        break;
      case "response.output_item.added":
        turn.output.push(event.item as OutputItem);
        break;
      case "response.output_item.done":
        turn.output[event.output_index] = event.item as OutputItem;
        break;
      case "response.content_part.added":
        texts.length = 0;
        turn.openPart = {
          kind: event.part.type,
          outputIndex: event.output_index,
          contentIndex: event.content_index,
          text: "",
          logprobs: [],
        };
        break;
      case "response.output_text.delta":
        turn.openPart?.logprobs.push(...(event.logprobs as TokenLogprob[]));
        texts.push(event.delta);
        turn.deltas += 1;
        break;
      case "response.reasoning_text.delta":
        texts.push(event.delta);
        turn.deltas += 1;
        turn.reasoningDeltas += 1;
        break;
      case "response.refusal.delta":
        texts.push(event.delta);
        turn.deltas += 1;
        break;
      case "response.function_call_arguments.delta": {
        const item = turn.output[event.output_index];
        if (item?.type === "function_call") item.arguments += event.delta;
        turn.deltas += 1;
        break;
      }
      case "response.content_part.done": {
        const item = turn.output[event.output_index];
        if (item?.type === "message" || item?.type === "reasoning") (item.content as unknown[]).push(event.part);
        turn.openPart = undefined;
        break;
      }
    }
  }
  if (turn.openPart) turn.openPart.text = texts.join("");
  return turn;
}
