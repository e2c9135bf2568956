import { jsonLength } from "../protocol/json.ts";
import type { EventWriter } from "./output-events.ts";
import type { TurnState } from "./state.ts";

/** What every part of a turn's output works on. */
export interface OutputParts {
  readonly state: TurnState;
  readonly writer: EventWriter;
  readonly size: OutputSize;
}

/** What an item, a part or a raw message has beside its text. */
const FRAME_LENGTH = 512;

/** What is kept free for what a turn says when it ends. */
const SPARE_LENGTH = 64 * 1024;

export interface OutputSizeOptions {
  /** What all that the turn puts out may take as JSON. */
  limit: number;
  /** Texts are given as raw messages, too (`enable_response_messages`). */
  withMessages: boolean;
}

/** How much of its limit a turn's output takes, at most and as JSON, in UTF-16 units: more could not be kept. */
export class OutputSize {
  readonly #limit: number;
  readonly #withMessages: boolean;
  /** What the model has sampled is kept beside the items: their texts are kept twice. */
  keepsSampled: boolean;
  #length: number;

  constructor({ replays, round, output, openPart, thoughts }: TurnState, { limit, withMessages }: OutputSizeOptions) {
    this.#limit = limit;
    this.#withMessages = withMessages;
    this.keepsSampled = round.sampled !== undefined || replays.length > 0;
    this.#length = JSON.stringify([output, replays, openPart?.logprobs, ...thoughts.values()]).length;
    this.addText(openPart?.text ?? "");
  }

  /** Nothing more can be kept of what the model says. */
  get isFull(): boolean {
    return this.#length + SPARE_LENGTH > this.#limit;
  }

  /** Whether this can be kept, too. */
  fits(value: unknown): boolean {
    return this.#length + SPARE_LENGTH + JSON.stringify(value).length <= this.#limit;
  }

  addText(text: string): void {
    this.#length += jsonLength(text) * (1 + Number(this.keepsSampled) + Number(this.#withMessages));
  }

  /** Adds items, parts or raw messages, without their texts. */
  addFrames(count: number): void {
    this.#length += count * FRAME_LENGTH;
  }

  /** Adds JSON of this length. Below zero takes away. */
  addJson(length: number): void {
    this.#length += length;
  }
}
