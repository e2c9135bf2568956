import type { ErrorFields } from "@responses-edge/responses-api/errors";
import type { Usage } from "@responses-edge/responses-api/response";
import type { RawMessage, Replay, Sampled, ToolExchange } from "./contract/engine.ts";
import type { ModelCall } from "./contract/measurements.ts";
import type { PendingCall } from "./contract/tool-session.ts";
import type { RepeatedKind } from "./repetition.ts";

/**
 * Records that a run's log has beside its events, so that a crashed turn can continue. No reader of the stream sees
 * them.
 *
 * A line of a log that begins with a brace is an event; one that begins with a bracket is a record.
 */

export type TurnRecord =
  /** The model's samples since the last of these. */
  | { sampled: Sampled }
  /**
   * The text at the end of the open part that may become a citation: the model has generated it, but no event has it.
   */
  | { buffered: string }
  /** More text of a thought that no event shows. It begins with an empty one, in the item that was added last. */
  | { thought: string }
  /** The end of that thought, which belongs to the item with this id. */
  | { thought_ended: string }
  /** The model has completed a call, perhaps in the middle of its generation. */
  | { called: PendingCall }
  /** A summary was made: the usage of all rounds and summaries so far, and this one's output tokens. */
  | { summarized: { usage: Usage | null; outputTokens: number } }
  /** A list of tools is complete. `origin` identifies its inputs. */
  | { listed: Replay }
  | { answering: AnsweringRecord }
  /** The call of this item is about to be run. It is never run again, because its progress is unknown. */
  | { dispatched: string }
  | { answered: CallAnswer }
  /** The turn has failed. Its events have neither status nor headers. */
  | { failure: ErrorFields }
  /** The model server has been away since this time, in Unix milliseconds. */
  | { outage: number }
  /** The model is to generate the items with these ids anew: it does not continue after them. */
  | { superseded: string[] }
  /** Deltas of the round that were lost so far. */
  | { lost: DeltaCount }
  /** The generation was broken off because of its end. */
  | { cut: Cut }
  /** The model is asked again in the same round, because its answer was unusable. */
  | { asked_again: true }
  /** A model call that has given its first token, or ended after that. */
  | { model_call: ModelCall }
  /** The item with this index was added or, the second time, done: at this time, in Unix milliseconds. */
  | { item_at: [index: number, at: number] }
  /** All calls are answered, and the next round begins. `trailing` are the raw messages after its prompt's items. */
  | { round: { trailing: RawMessage[] } };

/** Approximate tokens of delta events, and the reasoning tokens among them. */
export interface DeltaCount {
  all: number;
  reasoning: number;
}

/** Why a generation was broken off. */
export type CutReason = "repetition" | "thinking_token_budget";

/** A cut, as the log has it. */
export interface Cut {
  kind: RepeatedKind;
  reason: CutReason;
  /** The item with the text; null if no item shows it. */
  item: string | null;
  /** The index of the text among the item's parts. */
  part: number;
  /** The characters from `from` to `to` are not in later prompts of the turn. */
  from: number;
  to: number;
  /** The round's samples from which the model goes on, if its engine gives samples. */
  sampled?: Sampled;
  /** Deltas of the round that were lost so far, including those that this cut drops. */
  lost: DeltaCount;
}

/** A generation has ended with calls for this server to answer: everything that its round leaves. */
export interface AnsweringRecord {
  /** Raw messages behind the round's items. */
  replays: Replay[];
  /** Raw messages after the round's last item. */
  trailing: RawMessage[];
  usage: Usage | null;
  calls: PendingCall[];
  /** Messages with which the model is asked again, after the calls are answered. */
  again: RawMessage[];
}

/** A call's answer. */
export interface CallAnswer {
  /** The id of the call's item. */
  item: string;
  exchange: ToolExchange;
  /** The raw messages that give the answer to the model, if its engine uses such. */
  messages: RawMessage[];
}

export function isRecord(line: string): boolean {
  return line.startsWith("[");
}

export function recordLine(record: TurnRecord): string {
  return JSON.stringify([record]);
}

/** Reads the line of a record. Throws SyntaxError if the line is invalid. */
export function parseRecord(line: string): TurnRecord {
  const [record] = JSON.parse(line) as [TurnRecord];
  return record;
}
