/**
 * The events of a response that this page received, with the time each arrived. The page keeps a bounded number of
 * them.
 *
 * @typedef {object} RecordedEvent
 * @property {number} sequence
 * @property {string} type
 * @property {number | undefined} at Milliseconds since the request was sent; undefined if the event comes from a log.
 * @property {number} size Characters of its JSON
 * @property {string | undefined} json undefined if there was no room for it
 */

const MAX_EVENTS = 100_000;
const MAX_CHARACTERS = 16 * 1024 * 1024;

/** The number of latest responses whose events are kept. */
const MAX_RESPONSES = 20;

export class EventRecord {
  /** @type {RecordedEvent[]} */
  events = [];
  /** The number of events that were dropped because there were too many. */
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

/** The events of a response that this page has received. @param {string} id */
export function recordOf(id) {
  return records.get(id);
}
