import { html, nothing, render } from "lit-html";
import type { EventRecord, RecordedEvent } from "./event-record.ts";
import { foldedPart } from "./folded-part.ts";
import { beginning, count, duration, readableJson, size } from "./format.ts";
import { growingList } from "./growing-list.ts";
import { LongText } from "./long-text.ts";

/**
 * The events of a response in order: the number of each, its time of arrival, and its JSON when the user opens it.
 * Consecutive events of one type, such as deltas, share a line that can be opened.
 */

type Run = [first: RecordedEvent, ...rest: RecordedEvent[]];

const LINE = "[&>summary]:list-none [&>.inner]:mt-0";

/** Lines that are shown at first and added with each click on "more". */
const PAGE = 200;

export class Timeline {
  element = document.createElement("div");
  #record;
  #shown = PAGE;

  constructor(record: EventRecord) {
    this.#record = record;
    this.draw();
  }

  /** Shows the present state of the record. */
  draw() {
    const { events, dropped } = this.#record;
    const isTimed = events.some(({ at }) => at !== undefined);
    const runs = runsOf(events);
    const left = runs.length - this.#shown;
    const more = () => {
      this.#shown += PAGE;
      this.draw();
    };
    render(
      html`
        <p class="note">
          ${count(events.length)} events, ${size(events.reduce((sum, event) => sum + event.size, 0))} of
          JSON.${isTimed ? " Times are those of their arrival here, after the request was sent." : " The stored log has no times of single events."}
          ${dropped > 0 ? `${count(dropped)} more are not kept by this page.` : ""}
        </p>
        <ol class="timeline">${runs.slice(0, this.#shown).map((run) => html`<li>${runTemplate(run)}</li>`)}</ol>
        ${left > 0 ? html`<button type="button" @click=${more}>Show ${count(Math.min(PAGE, left))} more</button>` : nothing}
      `,
      this.element,
    );
  }
}

function runsOf(events: readonly RecordedEvent[]): Run[] {
  const runs: Run[] = [];
  for (const event of events) {
    const last = runs.at(-1);
    if (last?.[0].type === event.type) last.push(event);
    else runs.push([event]);
  }
  return runs;
}

function runTemplate(run: Run) {
  const [first] = run;
  const last = run.at(-1) ?? first;
  const { sequence, type, at } = first;
  if (run.length === 1) return eventTemplate(first, type);
  const time = at === undefined || last.at === undefined ? "" : `${duration(at)} + ${duration(last.at - at)}`;
  return lineTemplate(
    `${sequence}–${last.sequence}`,
    html`${type} <span class="tag">× ${count(run.length)}</span>`,
    time,
    () => growingList(run, PAGE, (event) => eventTemplate(event, deltaOf(event)), "timeline ms-4"),
  );
}

function eventTemplate({ sequence, at, json }: RecordedEvent, label: unknown) {
  const text = () =>
    json === undefined ? "There was no room on this page for this event's JSON." : readableJson(json);
  return lineTemplate(
    String(sequence),
    label,
    at === undefined ? "" : duration(at),
    () => new LongText(text(), { fileName: `event-${sequence}.json`, dir: "ltr" }).element,
  );
}

/** @param content of the line when it is open */
function lineTemplate(sequence: string, label: unknown, time: string, content: () => unknown) {
  const line = html`<span class="grid min-h-7 [font-weight:400] w-full grid-cols-[4.4rem_minmax(0,1fr)_auto] justify-start gap-3 px-1.5 py-0.5 text-sm hover:bg-sunken"><span class="time">${sequence}</span><span class="wrap-anywhere">${label}</span><span class="time">${time}</span></span>`;
  return foldedPart(line, content, LINE);
}

/** The beginning of the text that a delta adds. */
function deltaOf({ json, type, size: characters }: RecordedEvent) {
  if (json === undefined || characters > 10_000) return type;
  const { delta } = JSON.parse(json);
  const text = typeof delta === "string" ? JSON.stringify(beginning(delta, 60)) : type;
  return html`<code dir="auto">${text}</code>`;
}
