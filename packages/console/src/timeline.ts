import { html, nothing, render } from "lit-html";
import type { EventRecord, RecordedEvent } from "./event-record.ts";
import { beginning, count, duration, readableJson, size } from "./format.ts";
import { LongText } from "./long-text.ts";

/**
 * The events of a response in order: the number of each, its time of arrival, and its JSON when the user opens it.
 * Consecutive events of one type, such as deltas, share a line that can be opened.
 */

type Run = [first: RecordedEvent, ...rest: RecordedEvent[]];

/** Lines that are shown at first and added with each click on "more". */
const PAGE = 200;

function runsOf(events: readonly RecordedEvent[]): Run[] {
  const runs: Run[] = [];
  for (const event of events) {
    const last = runs.at(-1);
    if (last?.[0].type === event.type) last.push(event);
    else runs.push([event]);
  }
  return runs;
}

export class Timeline {
  element = document.createElement("div");
  #record: EventRecord;
  /** The number of lines shown of the list, under undefined, and of each open run, by the number of its first event. */
  #shown: Map<number | undefined, number> = new Map([[undefined, PAGE]]);
  /** The open JSON texts, by the event's number. */
  #json: Map<number, LongText> = new Map();

  constructor(record: EventRecord) {
    this.#record = record;
    this.draw();
  }

  /** Shows the present state of the record. */
  draw() {
    const { events, dropped } = this.#record;
    const isTimed = events.some(({ at }) => at !== undefined);
    render(
      html`
        <p class="note">
          ${count(events.length)} events, ${size(events.reduce((sum, event) => sum + event.size, 0))} of
          JSON.${isTimed ? " Times are those of their arrival here, after the request was sent." : " The stored log has no times of single events."}
          ${dropped > 0 ? `${count(dropped)} more are not kept by this page.` : ""}
        </p>
        ${this.#list(undefined, runsOf(events), this.#run)}
      `,
      this.element,
    );
  }

  /** A list as far as it is shown. @param key under which it is known how far */
  #list<Item>(key: number | undefined, all: readonly Item[], template: (item: Item) => unknown) {
    const shown = this.#shown.get(key) ?? PAGE;
    const more = () => {
      this.#shown.set(key, shown + PAGE);
      this.draw();
    };
    return html`<ol class="timeline ${key === undefined ? "" : "ms-4"}">${all.slice(0, shown).map(template)}</ol>
      ${all.length > shown ? html`<button type="button" @click=${more}>Show ${count(Math.min(PAGE, all.length - shown))} more</button>` : nothing}`;
  }

  /** @param body undefined while the line is closed */
  #line(sequence: string, label: unknown, time: string, toggle: () => void, body: unknown) {
    const press = () => {
      toggle();
      this.draw();
    };
    return html`<li>
      <button type="button" class="grid min-h-7 w-full grid-cols-[4.4rem_minmax(0,1fr)_auto] justify-start gap-3 border-transparent bg-transparent px-1.5 py-0.5 text-start text-sm hover:bg-sunken" aria-expanded=${body !== undefined} @click=${press}>
        <span class="time">${sequence}</span>
        <span class="wrap-anywhere">${label}</span>
        ${time ? html`<span class="time">${time}</span>` : nothing}
      </button>
      ${body ?? nothing}
    </li>`;
  }

  #run = (run: Run) => {
    const [first] = run;
    const last = run.at(-1) ?? first;
    const { sequence, type } = first;
    if (run.length === 1) return this.#event(first, type);
    const time =
      first.at === undefined || last.at === undefined ? "" : `${duration(first.at)} + ${duration(last.at - first.at)}`;
    const isOpen = this.#shown.has(sequence);
    return this.#line(
      `${sequence}–${last.sequence}`,
      html`${type} <span class="tag">× ${count(run.length)}</span>`,
      time,
      () => (isOpen ? this.#shown.delete(sequence) : this.#shown.set(sequence, PAGE)),
      isOpen ? this.#list(sequence, run, (event) => this.#event(event, deltaOf(event))) : undefined,
    );
  };

  #event(event: RecordedEvent, label: unknown) {
    const { sequence, at, json } = event;
    const open = this.#json.get(sequence);
    const toggle = () => {
      if (open) return this.#json.delete(sequence);
      const text = json === undefined ? "There was no room on this page for this event's JSON." : readableJson(json);
      return this.#json.set(sequence, new LongText(text, { fileName: `event-${sequence}.json`, dir: "ltr" }));
    };
    return this.#line(String(sequence), label, at === undefined ? "" : duration(at), toggle, open?.element);
  }
}

/** The beginning of the text that a delta adds. */
function deltaOf({ json, type, size: characters }: RecordedEvent) {
  if (json === undefined || characters > 10_000) return type;
  const { delta } = JSON.parse(json);
  const text = typeof delta === "string" ? JSON.stringify(beginning(delta, 60)) : type;
  return html`<code dir="auto">${text}</code>`;
}
