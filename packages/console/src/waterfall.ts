import { html, nothing } from "lit-html";
import type { RecordedEvent as RecordedEventOfEventRecord } from "./event-record.ts";
import { count, duration } from "./format.ts";
import type { ApiObject } from "./json.ts";

/**
 * The course of a response: its items as bars over time, if this page received them, and the tokens of its rounds.
 */

export type RecordedEvent = RecordedEventOfEventRecord;

/**
 * Milliseconds since the request was
 * sent.
 */
export type Bar = { name: string; from: number; until: number; isCall: boolean };

/** Bars that are shown. */
const MAX_BARS = 100;

/** The words for an item. */
function nameOf(item: ApiObject) {
  const type = String(item.type).replaceAll("_", " ");
  return item.name ? `${type} ${item.name}` : type;
}

function barsOf(events: readonly RecordedEvent[]): Bar[] {
  const bars: Map<number, Bar> = new Map();
  for (const { type, at, json } of events) {
    if (at === undefined || json === undefined) continue;
    if (type !== "response.output_item.added" && type !== "response.output_item.done") continue;
    const { output_index: index, item } = JSON.parse(json);
    const bar = bars.get(index) ?? {
      name: nameOf(item),
      from: at,
      until: at,
      isCall: String(item.type).endsWith("_call"),
    };
    bars.set(index, { ...bar, until: at });
  }
  return [...bars.values()].slice(0, MAX_BARS);
}

/** @param events that this page has seen of it */
export function waterfall(response: ApiObject, events: readonly RecordedEvent[]) {
  const bars = barsOf(events);
  const rounds = roundsOf(response);
  if (bars.length === 0 && rounds.length < 2) return nothing;
  const end = Math.max(1, ...bars.map(({ until }) => until), events.at(-1)?.at ?? 0);
  const most = Math.max(1, ...rounds.map(({ input, output }) => input + output));
  const percent = (part: number, whole: number) => `${((100 * part) / whole).toFixed(2)}%`;
  return html`<section class="card stack">
    <h2>Waterfall</h2>
    ${
      bars.length === 0
        ? nothing
        : html`<ol class="waterfall" aria-label="Items over time">
            ${bars.map(
              ({ name, from, until, isCall }) => html`<li>
                <span class="waterfall-name">${name}</span>
                <span class="waterfall-track"><span class=${isCall ? "waterfall-bar is-call" : "waterfall-bar"} .style=${`margin-inline-start: min(${percent(from, end)}, 100% - 3px); width: ${percent(until - from, end)}`}></span></span>
                <span class="waterfall-time">${duration(from)} + ${duration(until - from)}</span>
              </li>`,
            )}
          </ol>`
    }
    ${
      rounds.length < 2
        ? nothing
        : html`<ol class="waterfall" aria-label="Rounds by tokens">
            ${rounds.map(
              ({ input, cached, output }, index) => html`<li>
                <span class="waterfall-name">round ${index + 1}</span>
                <span class="waterfall-track">
                  <span class="waterfall-bar is-cached" .style=${`width: ${percent(cached, most)}`}></span><span class="waterfall-bar" .style=${`width: ${percent(input - cached, most)}`}></span><span class="waterfall-bar is-call" .style=${`width: ${percent(output, most)}`}></span>
                </span>
                <span class="waterfall-time">${count(input)} in (${count(cached)} cached), ${count(output)} out</span>
              </li>`,
            )}
          </ol>`
    }
  </section>`;
}

function roundsOf({ usage }: ApiObject): { input: number; cached: number; output: number }[] {
  const inputs = usage?.input_tokens_per_turn ?? [];
  return inputs.map((input: number, index: number) => ({
    input,
    cached: usage.cached_tokens_per_turn?.[index] ?? 0,
    output: usage.output_tokens_per_turn?.[index] ?? 0,
  }));
}
