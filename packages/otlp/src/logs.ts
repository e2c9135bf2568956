import type { Attributes } from "./instrument.ts";
import { type AttributeValue, attributes, nanos, type Scope } from "./otlp.ts";

/** Events as OTLP's log records, and texts that wait for an export. */

/** `SEVERITY_NUMBER_INFO`. */
const INFO = 9;

export interface LogEvent {
  name: string;
  /** Unix milliseconds. */
  at: number;
  body: string;
  attributes: Readonly<Record<string, AttributeValue>>;
}

/** A log record, as JSON. */
export function logRecord({ name, at, body, attributes: values }: LogEvent): string {
  const time = nanos(at);
  return JSON.stringify({
    timeUnixNano: time,
    observedTimeUnixNano: time,
    severityNumber: INFO,
    severityText: "INFO",
    eventName: name,
    body: { stringValue: body },
    attributes: attributes(values),
  });
}

/** The body of an export of log records, each as JSON. */
export function logsBody(resource: Attributes, scope: Scope, records: readonly string[]): string {
  const head = JSON.stringify({ attributes: attributes(resource) });
  return `{"resourceLogs":[{"resource":${head},"scopeLogs":[{"scope":${JSON.stringify(scope)},"logRecords":[${records.join(",")}]}]}]}`;
}

/** Texts that wait for an export, in their order, within a length. */
export class TextQueue {
  readonly #most: { waiting: number; batch: number };
  #texts: string[] = [];
  #length = 0;

  /** `most`: UTF-16 units that may wait, and that one batch has; a single text may be longer than a batch. */
  constructor(most: { waiting: number; batch: number }) {
    this.#most = most;
  }

  /** False if the limit is reached. */
  add(text: string): boolean {
    if (this.#length + text.length > this.#most.waiting) return false;
    this.#texts.push(text);
    this.#length += text.length;
    return true;
  }

  /** Takes the next batch; undefined without data. */
  take(): string[] | undefined {
    if (this.#texts.length === 0) return undefined;
    let length = 0;
    let count = 0;
    while (count < this.#texts.length && (count === 0 || length < this.#most.batch)) {
      length += this.#texts[count]?.length ?? 0;
      count += 1;
    }
    const taken = this.#texts.slice(0, count);
    this.#texts = this.#texts.slice(count);
    this.#length -= length;
    return taken;
  }
}
