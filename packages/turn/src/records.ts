import type { ErrorFields } from "@responses-edge/responses-api/errors";
import type { Usage } from "@responses-edge/responses-api/response";
import type { RawMessage, Replay, Sampled, ToolExchange } from "./engine.ts";
import type { PendingCall } from "./tool-session.ts";

/**
 * Records that a run's log keeps beside its events, so that a crashed turn can go on. No reader of the stream sees it.
 *
 * A line of a log that begins with a brace is an event; one that begins with a bracket is a record.
 */

export type TurnRecord =
  /** The model's samples since the last of these. */
  | { sampled: Sampled }
  /** The text at the end of the open part that may become a citation: the model has said it, no event has. */
  | { buffered: string }
  /** More of a thought that no event tells; it begins with an empty one, in the item that was added last. */
  | { thought: string }
  /** That thought is over: it is the one of the item of this id. */
  | { thought_ended: string }
  /** The model has completed a call, in the middle of its generation perhaps. */
  | { called: PendingCall }
  /** A summary has been made: the usage of all rounds and summaries by now, and this one's output tokens. */
  | { summarized: { usage: Usage | null; outputTokens: number } }
  /** A list of tools is complete. `origin` tells what it depends on. */
  | { listed: Replay }
  | { answering: AnsweringRecord }
  /** The call of this item is about to be run. It is never run again, because nobody knows how far it came. */
  | { dispatched: string }
  | { answered: CallAnswer }
  /** The turn has failed. The events that say so have neither status nor headers. */
  | { failure: ErrorFields }
  /** The model server is away since this time, in Unix milliseconds. */
  | { outage: number }
  /** The model is to say the items of these ids anew: it does not go on after them. */
  | { superseded: string[] }
  /** Deltas that the round has said in vain by now. */
  | { lost: DeltaCount }
  /** The model is asked again in the same round, because its answer could not be used. */
  | { asked_again: true }
  /** All calls are answered, and the next round begins. `trailing` are the raw messages after its prompt's items. */
  | { round: { trailing: RawMessage[] } };

/** Tokens of delta events, about; and those of them that were reasoning. */
export interface DeltaCount {
  all: number;
  reasoning: number;
}

/** A generation has ended with calls for this server to answer: all that its round leaves. */
export interface AnsweringRecord {
  /** Items of the turn by now. */
  items: number;
  /** Raw messages behind the round's items. */
  replays: Replay[];
  /** Raw messages after the round's last item. */
  trailing: RawMessage[];
  usage: Usage | null;
  calls: PendingCall[];
  /** Messages with which the model is asked again, once the calls are answered. */
  again: RawMessage[];
}

/** A call's answer. */
export interface CallAnswer {
  /** The id of the call's item. */
  item: string;
  exchange: ToolExchange;
  /** The raw messages that tell the answer to the model, where its engine has such. */
  messages: RawMessage[];
}

/** Records as they are stored. Where a key is not the word that the code uses, earlier versions have stored it. */
type StoredRecord =
  | Exclude<TurnRecord, { buffered: string } | { answering: AnsweringRecord } | { round: object }>
  | { held: string }
  | { answering: Omit<AnsweringRecord, "trailing"> & { loose: RawMessage[] } }
  | { round: { loose: RawMessage[] } };

export function isRecord(line: string): boolean {
  return line.startsWith("[");
}

export function recordLine(record: TurnRecord): string {
  return JSON.stringify([toStored(record)]);
}

/** Reads the line of a record. Throws SyntaxError where it is none. */
export function parseRecord(line: string): TurnRecord {
  const [stored] = JSON.parse(line) as [StoredRecord];
  if ("held" in stored) return { buffered: stored.held };
  if ("round" in stored) return { round: { trailing: stored.round.loose } };
  if (!("answering" in stored)) return stored;
  const { loose, ...rest } = stored.answering;
  return { answering: { ...rest, trailing: loose } };
}

function toStored(record: TurnRecord): StoredRecord {
  if ("buffered" in record) return { held: record.buffered };
  if ("round" in record) return { round: { loose: record.round.trailing } };
  if (!("answering" in record)) return record;
  const { items, replays, trailing, ...rest } = record.answering;
  return { answering: { items, replays, loose: trailing, ...rest } };
}
