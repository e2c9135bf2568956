/**
 * The events of a response as they came to this page, with the time of their arrival. The page keeps a bounded number of them.
 *
 * @typedef {object} RecordedEvent
 * @property {number} sequence
 * @property {string} type
 * @property {number | undefined} at Milliseconds since the request was sent; undefined where the event comes from a log.
 * @property {number} size Characters of its JSON
 * @property {string | undefined} json undefined where there was no room for it
 */

const MAX_EVENTS = 100_000;
const MAX_CHARACTERS = 16 * 1024 * 1024;

/** Responses whose events are kept, the latest ones. */
const MAX_RESPONSES = 20;

export class EventRecord {
  /** @type {RecordedEvent[]} */
  events = [];
  /** How many were not kept, because there were too many. */
  dropped = 0;
  #characters = 0;

  /**
   * @param {string} json
   * @param {{ type: string, sequence_number?: number }} event the same, parsed
   * @param {number | undefined} at
   */
  add(json, event, at) {
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

/** @type {Map<string, EventRecord>} */
const records = new Map();

/** Keeps a record under the id of its response. @param {string} id @param {EventRecord} record */
export function keepRecord(id, record) {
  records.delete(id);
  records.set(id, record);
  const [oldest] = records.keys();
  if (records.size > MAX_RESPONSES && oldest !== undefined) records.delete(oldest);
}

/** The events of a response that this page has seen. @param {string} id */
export function recordOf(id) {
  return records.get(id);
}
