import { isWord, type OutputItem } from "@responses-edge/responses-api/items/registry";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import type { ModelDelta, RawMessage, Replay } from "./engine.ts";
import { FRAME_LENGTH, type OutputSize } from "./output-events.ts";
import type { AnsweringRecord } from "./records.ts";
import type { TurnState } from "./state.ts";

/**
 * The messages as the model wrote them, by the items that they have become: what a prompt is made of again (`Replay`),
 * and what `enable_response_messages` gives.
 *
 * Those of ended generations are in the state. Those of the round in progress are here only: a log does not have them,
 * because an engine makes them again from what the round has sampled.
 */

interface RoundMessages {
  /** Messages of the round so far: the index of the next one. */
  count: number;
  /** `output_index` of the first item that has no message. */
  nextItem: number;
  replays: Replay[];
  /** Messages since that of the last item: they stand before the next one. */
  trailing: RawMessage[];
}

type MessageDelta = Extract<ModelDelta, { kind: "message" }>;

export class RawMessages {
  readonly #state: TurnState;
  readonly #response: ResponseObject;
  readonly #size: OutputSize;
  /** `previous_input_messages`, kept with the first item of the input. */
  readonly #previous: Replay[];
  /** The turn was cut off after its first generation had ended. */
  readonly hasEarlierRounds: boolean;
  #round: RoundMessages;
  /** Ids of the items whose messages have been sealed. */
  readonly #sealed = new Set<string>();
  /** Messages of the client's among those of the output. */
  #given: readonly RawMessage[] = [];

  /**
   * `previous` are the messages of `previous_input_messages`, which came before the turn's input: they are kept with its
   * first item (`firstInput`), or, where it has none, with the first item of the output.
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
    // Later they are in what the first round has left.
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

  /** Takes a message of the model's. One that the round has had already, before its upstream died, changes nothing. */
  keep({ index, itemKind: kind, message }: MessageDelta): void {
    const round = this.#round;
    if (index < round.count) return;
    round.count = index + 1;
    this.#size.length += 2 * FRAME_LENGTH;
    const { output } = this.#state;
    while (isNoWord(output[round.nextItem])) round.nextItem += 1;
    const item = output[round.nextItem];
    const isItems = item !== undefined && kind !== undefined && kind === kindOf(item);
    // A call that this turn does not allow: nobody will answer it, so it is not to be seen again.
    if (kind === "call" && !isItems) return;
    this.#response.output_messages?.push(message);
    if (isItems) round.nextItem += 1;
    // A call that waits for approval is made when it is approved.
    if (item?.type === "mcp_approval_request") return;
    round.trailing.push(message);
    if (!isItems) return;
    round.replays.push({ item: item.id, messages: round.trailing });
    round.trailing = [];
  }

  /** The messages that the ended generation leaves, for `AnsweringRecord`. */
  get left(): Pick<AnsweringRecord, "replays" | "trailing"> {
    return { replays: [...this.#round.replays], trailing: [...this.#round.trailing] };
  }

  /** The model is asked again in this round: it counts its messages from the beginning. */
  askAgain(): void {
    this.#round.count = 0;
  }

  /** The generation has ended, or the next round begins: from here on messages are added to what the state has. */
  beginRound(): void {
    this.#round = newRoundMessages(this.#state);
  }

  /** Adds the messages of an answer to what `enable_response_messages` gives. */
  addAnswer(messages: readonly RawMessage[]): void {
    this.#response.output_messages?.push(...messages);
  }

  /** Gives the messages that the prompt is made of with the response (`input_messages`). */
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

/** The kind of an item to the engine whose message has become one. */
function kindOf(item: OutputItem): MessageDelta["itemKind"] {
  const { type } = item;
  if (type === "reasoning" || type === "message") return type;
  return isNoWord(item) ? undefined : "call";
}
