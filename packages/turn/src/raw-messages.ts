import { isWord, type OutputItem } from "@responses-edge/responses-api/items/registry";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import type { ModelDelta, RawMessage, Replay } from "./contract/engine.ts";
import { FRAME_LENGTH, type OutputSize } from "./output-events.ts";
import type { AnsweringRecord } from "./records.ts";
import type { TurnState } from "./state.ts";

/**
 * The messages as the model wrote them, by the items that they have become: prompts are made of them again (`Replay`),
 * and `enable_response_messages` gives them.
 *
 * Messages of ended generations are in the state. Those of the round in progress are only here: a log does not have
 * them, because an engine makes them again from the samples of the round.
 */

interface RoundMessages {
  /** The number of messages of the round: the index of the next one. */
  count: number;
  /** `output_index` of the first item that has no message. */
  nextItem: number;
  replays: Replay[];
  /** Messages after that of the last item: they come before the next one. */
  trailing: RawMessage[];
}

type MessageDelta = Extract<ModelDelta, { kind: "message" }>;

export class RawMessages {
  readonly #state: TurnState;
  readonly #response: ResponseObject;
  readonly #size: OutputSize;
  /** `previous_input_messages`, stored with the first item of the input. */
  readonly #previous: Replay[];
  /** The turn was cut off after the end of its first generation. */
  readonly hasEarlierRounds: boolean;
  #round: RoundMessages;
  /** Ids of the items whose messages have been sealed. */
  readonly #sealed = new Set<string>();
  /** The client's messages among those of the output. */
  #given: readonly RawMessage[] = [];

  /**
   * `previous` are the messages of `previous_input_messages`, which came before the turn's input: they are stored with
   * its first item (`firstInput`), or, without one, with the first item of the output.
   */
  constructor(
    state: TurnState,
    response: ResponseObject,
    size: OutputSize,
    { previous, firstInput }: { previous: RawMessage[] | undefined; firstInput: string | undefined },
  ) {
    this.#state = state;
    this.#response = response;
    this.#size = size;
    this.hasEarlierRounds = state.rounds > 0 || state.answering !== undefined;
    this.#previous =
      previous && firstInput !== undefined ? [{ item: firstInput, messages: previous, before: true }] : [];
    this.#round = newRoundMessages(state);
    // In later rounds they are part of the first round's result.
    if (previous && firstInput === undefined && !this.hasEarlierRounds) {
      this.#round.trailing.unshift(...previous);
      this.#given = previous;
    }
  }

  /** Messages by their items. */
  get replays(): Replay[] {
    return [...this.#previous, ...this.#state.replays, ...this.#round.replays];
  }

  /** The model's messages that have come since this was called last, by their items, oldest first. */
  takeUnsealed(): Replay[] {
    const taken: Replay[] = [];
    for (const replays of [this.#round.replays, this.#state.replays]) {
      for (let index = replays.length - 1; index >= 0; index -= 1) {
        const replay = replays[index];
        if (!replay || this.#sealed.has(replay.item)) break;
        taken.push(replay);
      }
    }
    for (const { item } of taken) this.#sealed.add(item);
    const given = new Set(this.#given);
    this.#given = [];
    const own = (message: RawMessage) => !given.has(message);
    return taken.reverse().map((replay) => ({ ...replay, messages: replay.messages.filter(own) }));
  }

  /** The messages of an item of an ended generation. */
  of(item: string): readonly RawMessage[] {
    for (const replay of this.#state.replays) if (replay.item === item) return replay.messages;
    return [];
  }

  /** Keeps a message of the model. One that the round already had before its upstream died changes nothing. */
  keep({ index, itemKind: kind, message }: MessageDelta): void {
    const round = this.#round;
    if (index < round.count) return;
    round.count = index + 1;
    this.#size.length += 2 * FRAME_LENGTH;
    const { output } = this.#state;
    while (isNoWord(output[round.nextItem])) round.nextItem += 1;
    const item = output[round.nextItem];
    const isItems = item !== undefined && kind !== undefined && kind === kindOf(item);
    // A call that this turn does not allow is never answered, so it must not be shown again.
    if (kind === "call" && !isItems) return;
    this.#response.output_messages?.push(message);
    if (isItems) round.nextItem += 1;
    // A call that waits for approval is made after it.
    if (item?.type === "mcp_approval_request") return;
    round.trailing.push(message);
    if (!isItems) return;
    round.replays.push({ item: item.id, messages: round.trailing });
    round.trailing = [];
  }

  /** The messages of the ended generation, for `AnsweringRecord`. */
  get left(): Pick<AnsweringRecord, "replays" | "trailing"> {
    return { replays: [...this.#round.replays], trailing: [...this.#round.trailing] };
  }

  /** Begins the count of messages anew, because the model is asked again in this round. */
  askAgain(): void {
    this.#round.count = 0;
  }

  /** Ends the generation, or begins the next round: later messages are added to the state's. */
  beginRound(): void {
    this.#round = newRoundMessages(this.#state);
  }

  /** Adds the messages of an answer to those that `enable_response_messages` gives. */
  addAnswer(messages: readonly RawMessage[]): void {
    this.#response.output_messages?.push(...messages);
  }

  /** Sets the messages of the prompt, which the response gives (`input_messages`). */
  setInput(messages: RawMessage[]): void {
    const before = this.#response.input_messages;
    this.#size.length += JSON.stringify(messages).length - (before ? JSON.stringify(before).length : 0);
    this.#response.input_messages = messages;
    const own = [...this.#state.replays, ...this.#round.replays].flatMap((replay) => replay.messages);
    this.#response.output_messages = this.hasEarlierRounds ? [...own, ...this.#round.trailing] : [];
  }
}

function newRoundMessages({ round, trailing }: TurnState): RoundMessages {
  return { count: 0, nextItem: round.firstItem, replays: [], trailing: [...trailing] };
}

function isNoWord(item: OutputItem | undefined): boolean {
  return item !== undefined && !isWord(item);
}

/** The kind of an item in the terms of the engine whose message has become one. */
function kindOf(item: OutputItem): MessageDelta["itemKind"] {
  const { type } = item;
  if (type === "reasoning" || type === "message") return type;
  return isNoWord(item) ? undefined : "call";
}
