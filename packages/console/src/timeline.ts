import { html, nothing, render } from "lit-html";
import type { EventRecord, RecordedEvent } from "./event-record.ts";
import { count, duration, readableJson, size } from "./format.ts";
import { LongText } from "./long-text.ts";

/**
 * The events of a response in order: the number of each, its time of arrival, and its JSON when the user opens it.
 * Consecutive events of one type, such as deltas, share a line that can be opened.
 */

type Run = { type: string; events: RecordedEvent[] };

/** Lines that are shown at first and added with each click on "more". */
const PAGE = 200;

function runsOf(events: RecordedEvent[]): Run[] {
  const runs: Run[] = [];
  for (const event of events) {
    const last = runs.at(-1);
    if (last && last.type === event.type) last.events.push(event);
    else runs.push({ type: event.type, events: [event] });
  }
  return runs;
}

export class Timeline {
  element = document.createElement("div");
  #record: EventRecord;
  #shown = PAGE;
  /** The number of events shown of each open run, by the number of its first event. */
  #open: Map<number, number> = new Map();
  /** The open JSON texts, by the event's number. */
  #json: Map<number, LongText> = new Map();

  constructor(record: EventRecord) {
    this.#record = record;
    this.draw();
  }

  /** Shows the present state of the record. */
  draw() {
    const { events, dropped } = this.#record;
    const runs = runsOf(events);
    const isTimed = events.some(({ at }) => at !== undefined);
    render(
      html`
        <p class="note">
          ${count(events.length)} events, ${size(events.reduce((sum, event) => sum + event.size, 0))} of
          JSON.${isTimed ? " Times are those of their arrival here, after the request was sent." : " The stored log has no times of single events."}
          ${dropped > 0 ? `${count(dropped)} more are not kept by this page.` : ""}
        </p>
        <ol class="timeline">
          ${runs.slice(0, this.#shown).map((run) => this.#runTemplate(run))}
        </ol>
        ${
          runs.length > this.#shown
            ? html`<button
                type="button"
                @click=${() => {
                  this.#shown += PAGE;
                  this.draw();
                }}
              >
                Show ${count(Math.min(PAGE, runs.length - this.#shown))} more
              </button>`
            : nothing
        }
      `,
      this.element,
    );
  }

  #runTemplate({ type, events }: Run) {
    const [first] = events;
    if (!first) return nothing;
    if (events.length === 1) return this.#eventTemplate(first, type);
    const last = events.at(-1) ?? first;
    const shown = this.#open.get(first.sequence) ?? 0;
    const times =
      first.at === undefined || last.at === undefined
        ? nothing
        : html`<span class="time">${duration(first.at)} + ${duration(last.at - first.at)}</span>`;
    return html`<li>
      <button type="button" class="event-line" aria-expanded=${shown > 0} @click=${() => this.#toggleRun(first.sequence)}>
        <span class="sequence">${first.sequence}–${last.sequence}</span>
        <span class="event-type">${type} <span class="tag">× ${count(events.length)}</span></span>
        ${times}
      </button>
      ${
        shown > 0
          ? html`<ol class="timeline nested">
                ${events.slice(0, shown).map((event) => this.#eventTemplate(event, "", this.#deltaOf(event)))}
              </ol>
              ${
                events.length > shown
                  ? html`<button type="button" class="plain" @click=${() => this.#showMore(first.sequence)}>
                      Show ${count(Math.min(PAGE, events.length - shown))} more
                    </button>`
                  : nothing
              }`
          : nothing
      }
    </li>`;
  }

  #eventTemplate(event: RecordedEvent, label: string, delta?: string) {
    const json = this.#json.get(event.sequence);
    return html`<li>
      <button type="button" class="event-line" aria-expanded=${json !== undefined} @click=${() => this.#toggleJson(event)}>
        <span class="sequence">${event.sequence}</span>
        <span class="event-type">${delta === undefined ? label : html`<code dir="auto">${delta}</code>`}</span>
        ${event.at === undefined ? nothing : html`<span class="time">${duration(event.at)}</span>`}
      </button>
      ${json?.element ?? nothing}
    </li>`;
  }

  /** The beginning of what a delta adds. */
  #deltaOf({ json, type, size: characters }: RecordedEvent) {
    if (json === undefined || characters > 10_000) return type;
    const { delta } = JSON.parse(json);
    return typeof delta === "string" ? JSON.stringify(delta.length > 60 ? `${delta.slice(0, 60)}…` : delta) : type;
  }

  /** @param sequence of the first event */
  #toggleRun(sequence: number) {
    if (this.#open.has(sequence)) this.#open.delete(sequence);
    else this.#open.set(sequence, PAGE);
    this.draw();
  }

  #showMore(sequence: number) {
    this.#open.set(sequence, (this.#open.get(sequence) ?? 0) + PAGE);
    this.draw();
  }

  #toggleJson({ sequence, json }: RecordedEvent) {
    if (this.#json.has(sequence)) this.#json.delete(sequence);
    else {
      const text = json === undefined ? "There was no room on this page for this event's JSON." : readableJson(json);
      this.#json.set(sequence, new LongText(text, { fileName: `event-${sequence}.json`, dir: "ltr" }));
    }
    this.draw();
  }
}
