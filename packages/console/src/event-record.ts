/**
 * The events of a response that this page received, with the time each arrived. The page keeps a bounded number of
 * them.
 */
export interface RecordedEvent {
  sequence: number;
  type: string;
  /** Milliseconds since the request was sent; undefined if the event comes from a log. */
  at: number | undefined;
  /** Characters of its JSON */
  size: number;
  /** undefined if there was no room for it */
  json: string | undefined;
}

const MAX_EVENTS = 100_000;
const MAX_CHARACTERS = 16 * 1024 * 1024;

/** The number of latest responses whose events are kept. */
const MAX_RESPONSES = 20;

export class EventRecord {
  events: RecordedEvent[] = [];
  /** The number of events that were dropped because there were too many. */
  dropped = 0;
  #characters = 0;

  /** @param event the same, parsed */
  add(json: string, event: { type: string; sequence_number?: number }, at: number | undefined) {
    if (this.events.length >= MAX_EVENTS) {
      this.dropped += 1;
      return;
    }
    const fits = this.#characters + json.length <= MAX_CHARACTERS;
    if (fits) this.#characters += json.length;
    this.events.push({
      sequence: event.sequence_number ?? this.events.length,
      type: String(event.type),
      at,
      size: json.length,
      json: fits ? json : undefined,
    });
  }
}

const records: Map<string, EventRecord> = new Map();

/** Keeps a record under the id of its response. */
export function keepRecord(id: string, record: EventRecord) {
  records.delete(id);
  records.set(id, record);
  const [oldest] = records.keys();
  if (records.size > MAX_RESPONSES && oldest !== undefined) records.delete(oldest);
}

/** The events of a response that this page has received. */
export function recordOf(id: string) {
  return records.get(id);
}
