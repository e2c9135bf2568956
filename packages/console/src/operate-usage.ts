import { html, nothing, render } from "lit-html";
import { callJson } from "./api.ts";
import { type Column, figuresTable, objectsTable } from "./cards-table.ts";
import type { Series } from "./chart.ts";
import { ChartView, labelOfTime, MAX_SERIES, shortly } from "./chart-view.ts";
import { faultNotice, messageOf } from "./dialogs.ts";
import { type Field, type Form, fieldsTemplate, valuesIn } from "./fields.ts";
import { count, duration, money, size } from "./format.ts";
import { type Part, partElement } from "./list-and-one.ts";
import { requestsAddress } from "./request-filters.ts";
import {
  type Bucket,
  GROUPS,
  KINDS,
  type Kind,
  type Measure,
  type Sum,
  seriesOf,
  sumsOf,
  totalInWords,
} from "./usage-kinds.ts";

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

export function usageSection(): Part {
  const element = partElement();
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

  function formNow(): Form {
    const { measures, groups } = kind();
    const choice = (name: string, label: string, from: readonly [string, { label: string }][]): Field => ({
      ...{ name, label, kind: "choice" },
      options: from.map(([value, { label: text }]) => [value, text]),
    });
    const groupings = groups.map((field): [string, { label: string }] => [field, { label: GROUPS[field] ?? field }]);
    return [
      choice("kind", "Usage of", Object.entries(KINDS)),
      choice("span", "Time", spans()),
      choice("measure", "Metric", Object.entries(measures)),
      choice("group", "Group by", [["", { label: "Nothing" }], ...groupings]),
      { name: "tenant", label: "Tenant", placeholder: "all" },
    ];
  }

  function changed(event: Event) {
    event.preventDefault();
    const before = chosen.kind;
    const given = valuesIn(formNow(), new FormData(event.currentTarget as HTMLFormElement));
    Object.assign(chosen, { group: "", tenant: "" }, given);
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
    render(
      html`
        <div class="section-heading buttons spread"><h2>Usage</h2></div>
        <form class="filters" @change=${changed} @submit=${changed}>
          ${fieldsTemplate(formNow(), chosen, "usage")}
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
      figuresTable(
        "Usage",
        [
          ["From", ({ start_time: start }) => labelOf(start)],
          ...series.map(({ name, values }) => {
            const cell = (bucket: Bucket) => inCell(values[shown.indexOf(bucket)], measure);
            return [name, cell, "number"] as const;
          }),
        ],
        shown,
      ),
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
    const from = (buckets ?? [])[0]?.start_time;
    const address = (name: string, status: string) =>
      requestsAddress({ [FILTERS[chosen.group] ?? ""]: name, status, from });
    return largest(
      `${group === "Key" ? "Keys" : `${group}s`}, ${span().label.toLowerCase()}`,
      [
        [group, ({ name }) => html`<a href=${address(name, "")}>${name}</a>`],
        ["Requests", ({ requests }) => count(requests), "number"],
        [
          "Errors",
          ({ name, errors }) => (errors > 0 ? html`<a href=${address(name, "error")}>${count(errors)}</a>` : "0"),
          "number",
        ],
        ["Input tokens", ({ input }) => count(input), "number"],
        ["Output tokens", ({ output }) => count(output), "number"],
        ["Time on average", ({ average }) => duration(average), "number"],
        ["Cost", ({ cost }) => money(cost), "number"],
      ],
      sums,
      "used less",
    );
  }

  return { element, show: () => void load() };
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
  const cell = (value: number, limit: number | undefined, inWords: (value: number) => string = count) =>
    `${inWords(value)}${limit === undefined ? "" : ` of ${inWords(limit)}`}`;
  return largest(
    "Stored now",
    [
      ["Tenant", ({ project_id: tenant }) => tenant],
      ["Bytes", ({ usage_bytes: bytes, limits }) => cell(bytes, limits?.stored_bytes, size), "number"],
      ["Responses", ({ num_responses: number, limits }) => cell(number, limits?.stored_responses), "number"],
      [
        "Conversations",
        ({ num_conversations: number, limits }) => cell(number, limits?.stored_conversations),
        "number",
      ],
    ],
    storing,
    "store less",
  );
}

/** A table of the largest. @param less what the others do, in words */
function largest<Item>(title: string, columns: readonly Column<Item>[], items: readonly Item[], less: string) {
  return html`<section class="card stack">
    <h3>${title}</h3>
    ${objectsTable(title, columns, items.slice(0, MAX_ROWS))}
    ${items.length > MAX_ROWS ? html`<p class="note">${count(items.length - MAX_ROWS)} others ${less}.</p>` : nothing}
  </section>`;
}
