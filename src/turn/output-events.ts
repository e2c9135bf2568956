import type { DeltaEvent, DeltaType, ItemEvent, LifecycleType, Unnumbered } from "../items/events.ts";
import { itemId, type OutputItem } from "../items/registry.ts";
import type { TurnAddress } from "../protocol/ids.ts";
import type { TurnRecord } from "./records.ts";
import { applyDelta, applyEvent, applyRecord, type TurnState } from "./state.ts";

/** Takes the events of a turn, in order, each as its type and its JSON text. */
export interface EventSink {
  event(type: string, json: string): void;
  /** Keeps what a crashed turn needs to go on; a sink that does not survive a crash has no use for it. */
  record?(record: TurnRecord): void;
  /** A turn that fails says `response.failed` and no `error` before it, which would end the turn for its reader. */
  readonly failsAlone?: boolean;
}

/** A sink that can be written to in batches and pushes back. */
export interface BatchSink extends EventSink {
  /** Writes at once, where a crash must not forget what is about to be done. */
  commit?(): void;
  /** Called after all events of one upstream read; a returned promise holds the turn back until it resolves. */
  flush(): Promise<void> | undefined;
  /** After so long without an event, in milliseconds, `response.in_progress` is repeated. */
  readonly signOfLifeMs?: number;
}

export interface EventWriterOptions {
  address: TurnAddress;
  /** Absent when nobody streams: events then only change the state. */
  sink?: EventSink | undefined;
  /** Pad delta events with random characters (`stream_options.include_obfuscation`). */
  obfuscation: boolean;
}

/** Delta and obfuscation together fill a multiple of this many characters. */
const OBFUSCATION_BLOCK = 16;

/**
 * The one place that counts events and items: `sequence_number`, `output_index`, item ids. Whatever goes through it is
 * applied to the state of the turn, and told to the sink.
 */
export class EventWriter {
  readonly #state: TurnState;
  readonly #address: TurnAddress;
  readonly #sink: EventSink | undefined;
  readonly #padding: string;

  constructor(state: TurnState, { address, sink, obfuscation }: EventWriterOptions) {
    this.#state = state;
    this.#address = address;
    this.#sink = sink;
    this.#padding = obfuscation ? crypto.randomUUID().replaceAll("-", "") : "";
  }

  /** The id that the next item gets, by its type. */
  newItemId(type: OutputItem["type"]): string {
    return itemId(type, this.#address, "output", this.#state.output.length);
  }

  /** Puts an item into the output and says so. Gives its `output_index`. */
  addItem(item: OutputItem): number {
    const output_index = this.#state.output.length;
    this.emit({ type: "response.output_item.added", output_index, item });
    return output_index;
  }

  /** Applies an event and says it, unless `isSilent`: an ended turn has settled items of which no event tells. */
  emit(event: Unnumbered<ItemEvent>, isSilent = false): void {
    applyEvent(this.#state, event);
    if (!this.#sink || isSilent) return;
    const numbered = Object.assign({ type: event.type, sequence_number: this.#state.sequence++ }, event);
    this.#sink.event(event.type, JSON.stringify(numbered));
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
   * The hottest lines of the server: one delta event, its JSON put together from what does not change (`deltaHead`).
   * `extra` is JSON to stand behind the delta.
   */
  delta(type: DeltaType, head: string, text: string, extra = ""): void {
    applyDelta(this.#state, type, text);
    if (!this.#sink) return;
    let json = `${head}${this.#state.sequence++},"delta":${JSON.stringify(text)}${extra}`;
    if (this.#padding !== "") {
      const length = OBFUSCATION_BLOCK - (text.length % OBFUSCATION_BLOCK);
      json += `,"obfuscation":"${this.#padding.slice(0, length)}"`;
    }
    this.#sink.event(type, `${json}}`);
  }
}

/** The JSON of a delta event up to its sequence number. */
export function deltaHead(
  type: DeltaType,
  at: Pick<DeltaEvent, "item_id" | "output_index"> & { content_index?: number; summary_index?: number },
): string {
  return `${JSON.stringify({ type, ...at }).slice(0, -1)},"sequence_number":`;
}
