import { itemId, type TurnAddress } from "../protocol/ids.ts";
import type { OutputItem, ResponseObject } from "../protocol/response.ts";
import type { TurnRecord } from "./logged-turn.ts";

/** Takes the events of a turn, in order, each as its type and its JSON text. */
export interface EventSink {
  event(type: string, json: string): void;
  /** Keeps what a crashed turn needs to go on; a sink that does not survive a crash has no use for it. */
  record?(record: TurnRecord): void;
}

export interface EventWriterOptions {
  address: TurnAddress;
  /** Absent when nobody streams: no event is built then. */
  sink?: EventSink;
  /** Pad delta events with random characters (`stream_options.include_obfuscation`). */
  obfuscation: boolean;
  /** The sequence number of the first event. */
  sequence: number;
}

/** Delta and obfuscation together fill a multiple of this many characters. */
const OBFUSCATION_BLOCK = 16;

/** The one place that counts events and items: `sequence_number`, `output_index`, item ids. */
export class EventWriter {
  readonly #response: ResponseObject;
  readonly #address: TurnAddress;
  readonly #sink: EventSink | undefined;
  readonly #padding: string;
  #sequence: number;

  /** Items go into the `output` of `response`. */
  constructor(response: ResponseObject, options: EventWriterOptions) {
    this.#response = response;
    this.#address = options.address;
    this.#sink = options.sink;
    this.#padding = options.obfuscation ? crypto.randomUUID().replaceAll("-", "") : "";
    this.#sequence = options.sequence;
  }

  /** Events so far; the next one's sequence number. */
  get sequence(): number {
    return this.#sequence;
  }

  /** Whether anybody gets to see the events. */
  get isRead(): boolean {
    return this.#sink !== undefined;
  }

  /** The id that the next item gets, by its type. */
  newItemId(type: OutputItem["type"]): string {
    return itemId(type, this.#address, "output", this.#response.output.length);
  }

  /** Puts an item into the output and says so. Gives its `output_index`. */
  addItem(item: OutputItem): number {
    const outputIndex = this.#response.output.push(item) - 1;
    this.emit("response.output_item.added", { output_index: outputIndex, item });
    return outputIndex;
  }

  emit(type: string, fields: Record<string, unknown>): void {
    this.#sink?.event(type, JSON.stringify({ type, sequence_number: this.#sequence++, ...fields }));
  }

  record(record: TurnRecord): void {
    this.#sink?.record?.(record);
  }

  /** An event that carries the whole response. */
  lifecycle(type: string, responseJson: string): void {
    this.#sink?.event(type, `{"type":"${type}","sequence_number":${this.#sequence++},"response":${responseJson}}`);
  }

  /**
   * The hottest lines of the server: one delta event, its JSON put together from what does not change (`deltaHead`).
   * `extra` is JSON to stand behind the delta.
   */
  delta(type: string, head: string, text: string, extra = ""): void {
    if (!this.#sink) return;
    let json = `${head}${this.#sequence++},"delta":${JSON.stringify(text)}${extra}`;
    if (this.#padding !== "") {
      const length = OBFUSCATION_BLOCK - (text.length % OBFUSCATION_BLOCK);
      json += `,"obfuscation":"${this.#padding.slice(0, length)}"`;
    }
    this.#sink.event(type, `${json}}`);
  }
}

/** The JSON of a delta event up to its sequence number. */
export function deltaHead(type: string, at: Record<string, unknown>): string {
  return `${JSON.stringify({ type, ...at }).slice(0, -1)},"sequence_number":`;
}
