import { html, nothing, render } from "lit-html";
import { keyed } from "lit-html/directives/keyed.js";
import { callJson } from "./api.ts";
import { cardsTable, number } from "./cards-table.ts";
import type { Series } from "./chart.ts";
import { ChartView, labelOfTime, MAX_SERIES, shortly } from "./chart-view.ts";
import { faultNotice, messageOf } from "./dialogs.ts";
import { count, duration, money, size } from "./format.ts";
import { requestsAddress } from "./request-filters.ts";
import type { Bucket, Kind, Measure, Sum } from "./usage-kinds.ts";
import { GROUPS, KINDS, seriesOf, sumsOf, totalInWords } from "./usage-kinds.ts";
import type { Section } from "./view.ts";

/**
 * The usage over time, of each kind (`usage-kinds.js`), and the present storage:
 * `GET /v1/organization/usage/storage`.
 */
export interface Stored {
  usage_bytes: number;
  num_responses: number;
  num_conversations: number;
  project_id: string;
  limits: { stored_bytes?: number; stored_responses?: number; stored_conversations?: number } | null;
}

/** `isByDay` is true for those that have buckets of a day. */
const SPANS: Record<string, { label: string; seconds: number; width: "1h" | "1d"; buckets: number; isByDay?: true }> = {
  day: { label: "The last 24 hours", seconds: 3_600, width: "1h", buckets: 24 },
  week: { label: "The last 7 days, by hours", seconds: 3_600, width: "1h", buckets: 168 },
  month: { label: "The last 30 days", seconds: 86_400, width: "1d", buckets: 30, isByDay: true },
};

/** The rows of a table: those that use or store most. */
const MAX_ROWS = 100;

/** The filter of *Requests* for each group. */
const FILTERS: Record<string, string> = { project_id: "tenant", api_key_id: "api_key_id", model: "model" };

export function usageSection(element: HTMLElement): Section {
  const chosen = { kind: "completions", span: "day", measure: "tokens", group: "", tenant: "" };
  let buckets: Bucket[] | undefined;
  let stored: Stored[] = [];
  let fault = "";
  let asked = 0;
  const chart = new ChartView();

  const kind = () => KINDS[chosen.kind] as Kind;

  const span = () => SPANS[chosen.span] as (typeof SPANS)[string];

  const spans = () => Object.entries(SPANS).filter(([, { isByDay = false }]) => isByDay || !kind().isByDay);

  async function load() {
    asked += 1;
    const question = asked;
    const { seconds, width, buckets: limit } = span();
    const end = Math.floor(Date.now() / 1_000);
    const start = Math.floor(end / seconds) * seconds - (limit - 1) * seconds;
    const query = new URLSearchParams({ start_time: String(start), bucket_width: width, limit: String(limit) });
    if (chosen.group) query.set("group_by", chosen.group);
    if (chosen.tenant) query.set("project_ids", chosen.tenant);
    try {
      const ofTenant = chosen.tenant ? `&project_ids=${encodeURIComponent(chosen.tenant)}` : "";
      const [page, storage] = await Promise.all([
        callJson(`${kind().path}?${query}`),
        callJson(`/v1/organization/usage/storage?group_by=project_id${ofTenant}`),
      ]);
      if (question !== asked) return;
      buckets = page.data;
      stored = storage.data[0].results;
      fault = "";
    } catch (error) {
      if (question !== asked) return;
      fault = messageOf(error);
    }
    draw();
  }

  function changed(event: Event) {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const before = chosen.kind;
    for (const name of Object.keys(chosen) as (keyof typeof chosen)[]) {
      chosen[name] = String(data.get(name) ?? "").trim();
    }
    // A kind has choices of its own.
    const { measures, groups } = kind();
    if (!(chosen.measure in measures)) chosen.measure = Object.keys(measures)[0] ?? "";
    if (!groups.includes(chosen.group)) chosen.group = "";
    if (!spans().some(([name]) => name === chosen.span)) chosen.span = spans()[0]?.[0] ?? "";
    if (chosen.kind !== before) {
      buckets = undefined;
      draw();
    }
    void load();
  }

  function draw() {
    const { measures, groups } = kind();
    const choice = (
      name: keyof typeof chosen,
      label: string,
      choices: readonly (readonly [value: string, label: string])[],
    ) => html`<div>
      <label for=${`usage-${name}`}>${label}</label>
      <select id=${`usage-${name}`} name=${name}>
        ${choices.map(([value, text]) => html`<option value=${value} ?selected=${value === chosen[name]}>${text}</option>`)}
      </select>
    </div>`;
    const labelled = (entries: readonly [string, { label: string }][]) =>
      entries.map(([value, { label }]) => [value, label] as const);
    render(
      html`
        <div class="section-heading"><h2>Usage</h2></div>
        <form class="filters" @change=${changed} @submit=${changed}>
          ${choice("kind", "Usage of", labelled(Object.entries(KINDS)))}
          ${[
            choice("span", "Time", labelled(spans())),
            choice("measure", "Metric", labelled(Object.entries(measures))),
            choice("group", "Group by", [
              ["", "Nothing"],
              ...groups.map((field) => [field, GROUPS[field] ?? field] as const),
            ]),
          ].map((each) => keyed(chosen.kind, each))}
          <div><label for="usage-tenant">Tenant</label><input dir="auto" id="usage-tenant" name="tenant" autocomplete="off" spellcheck="false" placeholder="all" /></div>
        </form>
        ${faultNotice(fault)}
        ${buckets ? [usageTemplate(buckets), storedTemplate(stored)] : fault ? nothing : html`<p class="note">Loading…</p>`}
      `,
      element,
    );
  }

  function usageTemplate(shown: readonly Bucket[]) {
    if (shown.every(({ results }) => results.length === 0)) {
      return html`<p class="note">Nothing was used in this time.</p>`;
    }
    const measure = kind().measures[chosen.measure] as Measure;
    const series = seriesOf(shown, measure, chosen.group, MAX_SERIES);
    const { seconds, buckets: number } = span();
    const labelOf = (time: number) => labelOfTime(time, seconds, seconds * number);
    showChart(shown, series, measure, labelOf);
    return [
      chart.element,
      chosen.group && kind().measures.num_errors ? sumsTemplate(sumsOf(shown, chosen.group)) : nothing,
      html`<details class="card">
        <summary>The figures as a table</summary>
        <div class="wide" tabindex="0" role="region" aria-label="Usage">
          <table>
            <thead><tr><th scope="col">From</th>${series.map(({ name }) => html`<th scope="col" class="number">${name}</th>`)}</tr></thead>
            <tbody>
              ${shown.map(
                ({ start_time: start }, row) =>
                  html`<tr><th scope="row">${labelOf(start)}</th>${series.map(({ values }) => html`<td class="number">${inCell(values[row], measure)}</td>`)}</tr>`,
              )}
            </tbody>
          </table>
        </div>
      </details>`,
    ];
  }

  function showChart(shown: readonly Bucket[], series: Series[], measure: Measure, labelOf: (time: number) => string) {
    const what = `${measure.label}${chosen.kind === "completions" ? "" : `, ${kind().label.toLowerCase()}`}`;
    const isMoney = measure.inWords === money;
    chart.show({
      title: `${what}, ${span().label.toLowerCase()}`,
      note: totalInWords(series, measure),
      times: shown.map(({ start_time: start }) => start),
      series,
      isStacked: !measure.isTime,
      isWhole: !(measure.isTime || isMoney),
      labelOf,
      inWords: measure.inWords,
      inShort: measure.isTime || measure.isLevel || isMoney ? measure.inWords : shortly,
    });
  }

  /** Who used how much, and what failed. */
  function sumsTemplate(sums: readonly Sum[]) {
    const group = GROUPS[chosen.group] ?? chosen.group;
    return html`<section class="card stack">
      <h3>${group === "Key" ? "Keys" : `${group}s`}, ${span().label.toLowerCase()}</h3>
      ${cardsTable(
        group,
        [
          group,
          number("Requests"),
          number("Errors"),
          number("Input tokens"),
          number("Output tokens"),
          number("Time on average"),
          number("Cost"),
        ],
        sums.slice(0, MAX_ROWS).map((each) => sumRow(each)),
      )}
      ${sums.length > MAX_ROWS ? html`<p class="note">${count(sums.length - MAX_ROWS)} others used less.</p>` : nothing}
    </section>`;
  }

  function sumRow({ name, requests, errors, input, output, average, cost }: Sum) {
    const from = (buckets ?? [])[0]?.start_time;
    const address = (status: string) => requestsAddress({ [FILTERS[chosen.group] ?? ""]: name, status, from });
    return html`<tr>
      <th scope="row" dir="auto"><a href=${address("")}>${name}</a></th>
      <td class="number" data-label="Requests">${count(requests)}</td>
      <td class="number" data-label="Errors">${errors > 0 ? html`<a href=${address("error")}>${count(errors)}</a>` : "0"}</td>
      <td class="number" data-label="Input tokens">${count(input)}</td>
      <td class="number" data-label="Output tokens">${count(output)}</td>
      <td class="number" data-label="Time on average">${average === null ? "–" : duration(average)}</td>
      <td class="number" data-label="Cost">${money(cost)}</td>
    </tr>`;
  }

  return { show: () => void load() };
}

/** A time that nobody took is not zero. */
function inCell(value: number | null | undefined, { inWords, isTime }: Measure) {
  return value == null && isTime ? "–" : inWords(value ?? 0);
}

/** The storage of tenants now, those that store most first. */
function storedTemplate(tenants: readonly Stored[]) {
  const storing = tenants
    .filter(({ usage_bytes: bytes, limits }) => bytes > 0 || limits !== null)
    .sort((one, other) => other.usage_bytes - one.usage_bytes);
  if (storing.length === 0) return nothing;
  const cell = (value: number, limit: number | undefined, inWords = count as (value: number) => string) =>
    html`<td class="number">${inWords(value)}${limit === undefined ? nothing : ` of ${inWords(limit)}`}</td>`;
  return html`
    <section class="card stack">
      <h3>Stored now</h3>
      <div class="wide" tabindex="0" role="region" aria-label="Stored now">
        <table>
          <thead><tr><th scope="col">Tenant</th><th scope="col" class="number">Bytes</th><th scope="col" class="number">Responses</th><th scope="col" class="number">Conversations</th></tr></thead>
          <tbody>
            ${storing
              .slice(0, MAX_ROWS)
              .map(
                ({
                  project_id: tenant,
                  usage_bytes: bytes,
                  num_responses: responses,
                  num_conversations: conversations,
                  limits,
                }) =>
                  html`<tr><th scope="row" dir="auto">${tenant}</th>${cell(bytes, limits?.stored_bytes, size)}${cell(responses, limits?.stored_responses)}${cell(conversations, limits?.stored_conversations)}</tr>`,
              )}
          </tbody>
        </table>
      </div>
      ${storing.length > MAX_ROWS ? html`<p class="note">${count(storing.length - MAX_ROWS)} others store less.</p>` : nothing}
    </section>
  `;
}
