import type { TurnAddress } from "@responses-edge/responses-api/ids";
import type {
  DeltaEvent,
  DeltaType,
  ItemEvent,
  LifecycleType,
  Unnumbered,
} from "@responses-edge/responses-api/items/events";
import { withoutImage } from "@responses-edge/responses-api/items/image-generation";
import { agentOf } from "@responses-edge/responses-api/items/multi-agent";
import { itemId, type OutputItem } from "@responses-edge/responses-api/items/registry";
import { jsonLength } from "@responses-edge/responses-api/json";
import type { TurnRecord } from "./records.ts";
import { applyDelta, applyEvent, applyRecord, type TurnState } from "./state.ts";
import type { AsideEvent } from "./steering.ts";
import { MAX_TIMED_ITEMS } from "./timing.ts";

/** Takes the events of a turn, in order, each as its type and its JSON text. */
interface EventSink {
  event(type: string, json: string): void;
  /** Stores what a crashed turn needs to continue. A sink that does not survive a crash does not need it. */
  record?(record: TurnRecord): void;
  /** A failed turn sends `response.failed` without an `error` before it, which would end the turn for its reader. */
  readonly failsAlone?: boolean;
}

/** A sink that takes batches and applies back-pressure. */
export interface BatchSink extends EventSink {
  /** Writes at once, before an action that a crash must not make forgotten. */
  commit?(): void;
  /** Called after all events of one upstream read; a returned promise makes the turn wait. */
  flush(): Promise<void> | undefined;
  /** Milliseconds without an event after which `response.in_progress` is repeated. */
  readonly signOfLifeMs?: number;
}

/** Shared by all parts of a turn's output. */
export interface OutputParts {
  readonly state: TurnState;
  readonly writer: EventWriter;
  readonly size: OutputSize;
  /** Makes the fingerprint of a program that begins now. */
  readonly fingerprint: (program: { call_id: string; code: string }) => string;
}

interface EventWriterOptions {
  address: TurnAddress;
  /** Absent if nobody streams: events then only change the state. */
  sink?: EventSink | undefined;
  /** Now, in Unix milliseconds. */
  clock: () => number;
  /** Pad delta events with random characters (`stream_options.include_obfuscation`). */
  obfuscation: boolean;
  /** The agent that the turn is, if its response may have several: its items and events name it. */
  agent?: string | undefined;
}

/** Delta and obfuscation together fill a multiple of this many characters. */
const OBFUSCATION_BLOCK = 16;

/**
 * The one place that counts events and items: `sequence_number`, `output_index`, item ids. It applies every event and
 * record to the state of the turn, and passes it to the sink.
 */
export class EventWriter {
  readonly #state: TurnState;
  readonly #address: TurnAddress;
  readonly #sink: EventSink | undefined;
  readonly #clock: () => number;
  readonly #padding: string;
  readonly #agent: { agent_name: string } | undefined;
  /** The end of the JSON of each delta event. */
  readonly #deltaEnd: string;

  constructor(state: TurnState, { address, sink, clock, obfuscation, agent }: EventWriterOptions) {
    this.#state = state;
    this.#address = address;
    this.#sink = sink;
    this.#clock = clock;
    this.#padding = obfuscation ? crypto.randomUUID().replaceAll("-", "") : "";
    this.#agent = agent === undefined ? undefined : { agent_name: agent };
    this.#deltaEnd = this.#agent ? `,"agent":${JSON.stringify(this.#agent)}}` : "}";
  }

  /** The id that the next item gets, by its type. */
  newItemId(type: OutputItem["type"]): string {
    return itemId(type, this.#address, "output", this.#state.output.length);
  }

  /** Adds an item to the output, with its event. Gives its `output_index`. */
  addItem(item: OutputItem): number {
    if (this.#agent && agentOf(item) === undefined) Object.assign(item, { agent: this.#agent });
    const output_index = this.#state.output.length;
    this.emit({ type: "response.output_item.added", output_index, item });
    return output_index;
  }

  /** Applies an event and sends it, unless `isSilent`: an ended turn settles some items without events. */
  emit(event: Unnumbered<ItemEvent>, isSilent = false): void {
    applyEvent(this.#state, event);
    if (this.#sink && !isSilent) {
      const numbered = Object.assign({ type: event.type, sequence_number: this.#state.sequence++ }, event);
      if (this.#agent && "output_index" in event) Object.assign(numbered, { agent: this.#agentAt(event.output_index) });
      this.#sink.event(event.type, JSON.stringify(numbered));
    }
    const isItem = event.type === "response.output_item.added" || event.type === "response.output_item.done";
    if (isItem && event.output_index < MAX_TIMED_ITEMS) {
      this.record({ item_at: [event.output_index, this.#clock()] });
    }
  }

  #agentAt(index: number): { agent_name: string } | undefined {
    const item = this.#state.output[index];
    const name = item && agentOf(item);
    return name === undefined ? this.#agent : { agent_name: name };
  }

  /** Says an event that changes nothing of the turn, in its sequence. */
  aside(event: AsideEvent): void {
    this.#sink?.event(event.type, JSON.stringify({ ...event, sequence_number: this.#state.sequence++ }));
  }

  /** The turn has a log, from which it can be resumed. */
  get hasLog(): boolean {
    return this.#sink?.record !== undefined;
  }

  record(record: TurnRecord): void {
    applyRecord(this.#state, record);
    this.#sink?.record?.(record);
  }

  /** An event that carries the whole response. */
  lifecycle(type: LifecycleType, responseJson: string): void {
    applyEvent(this.#state, { type });
    if (!this.#sink) return;
    const sequence = this.#state.sequence++;
    this.#sink.event(type, `{"type":"${type}","sequence_number":${sequence},"response":${responseJson}}`);
  }

  /**
   * The hottest lines of the server: one delta event, whose JSON begins with a prepared text (`deltaHead`). `extra` is
   * JSON after the delta.
   */
  delta(type: DeltaType, head: string, text: string, extra = ""): void {
    applyDelta(this.#state, type, text);
    if (!this.#sink) return;
    let json = `${head}${this.#state.sequence++},"delta":${JSON.stringify(text)}${extra}`;
    if (this.#padding !== "") {
      const length = OBFUSCATION_BLOCK - (text.length % OBFUSCATION_BLOCK);
      json += `,"obfuscation":"${this.#padding.slice(0, length)}"`;
    }
    this.#sink.event(type, json + this.#deltaEnd);
  }
}

/** The JSON of a delta event up to its sequence number. */
export function deltaHead(
  type: DeltaType,
  at: Pick<DeltaEvent, "item_id" | "output_index"> & { content_index?: number; summary_index?: number },
): string {
  return `${JSON.stringify({ type, ...at }).slice(0, -1)},"sequence_number":`;
}

/** The length of an item, a part or a raw message beside its text. */
export const FRAME_LENGTH = 512;

/** Length that is kept free for the end of a turn. */
const SPARE_LENGTH = 64 * 1024;

interface OutputSizeOptions {
  /** The longest JSON of the turn's whole output. */
  limit: number;
  /** Texts are also given as raw messages (`enable_response_messages`). */
  withMessages: boolean;
}

/**
 * Counts how much of its limit a turn's output takes, as an upper bound of its JSON in UTF-16 units. More could not be
 * stored.
 */
export class OutputSize {
  readonly #limit: number;
  readonly #withMessages: boolean;
  /** The model's samples are stored beside the items, so that their texts are stored twice. */
  keepsSampled: boolean;
  /** The length so far. Code that adds anything but the model's words adds to it. */
  length: number;

  constructor({ replays, round, output, openPart, thoughts }: TurnState, { limit, withMessages }: OutputSizeOptions) {
    this.#limit = limit;
    this.#withMessages = withMessages;
    this.keepsSampled = round.sampled !== undefined || replays.length > 0;
    this.length = JSON.stringify([output.map(withoutImage), replays, openPart?.logprobs, ...thoughts.values()]).length;
    this.addText(openPart?.text ?? "");
  }

  /** True if no more output of the model can be stored. */
  get isFull(): boolean {
    return this.length + SPARE_LENGTH > this.#limit;
  }

  /** Tells whether this can be stored, too. */
  fits(value: unknown): boolean {
    return this.length + SPARE_LENGTH + JSON.stringify(value).length <= this.#limit;
  }

  addText(text: string): void {
    this.length += jsonLength(text) * (1 + Number(this.keepsSampled) + Number(this.#withMessages));
  }
}
