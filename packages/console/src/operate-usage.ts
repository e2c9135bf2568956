import { html, nothing } from "lit-html";
import { callJson } from "./api.ts";
import { type Column, objectsTable } from "./cards-table.ts";
import { ChartView } from "./chart-view.ts";
import type { Field } from "./fields.ts";
import { count, duration, money, size } from "./format.ts";
import type { ApiObject } from "./json.ts";
import { type Bucket, chartOf, columnsOf, labelsOf, lastBuckets, type Measure, seriesOf } from "./measures.ts";
import type { Page } from "./paged-list.ts";
import { requestsAddress } from "./request-filters.ts";
import { type Filters, type Resource, ResourceList } from "./resource.ts";
import { KINDS, type Kind } from "./usage-kinds.ts";

/**
 * The usage over time, of each kind (`usage-kinds.ts`), and the present storage:
 * `GET /v1/organization/usage/storage`.
 */

/** `isByDay` is true for those that have buckets of a day. */
const SPANS: Record<string, { label: string; seconds: number; width: string; buckets: number; isByDay?: true }> = {
  day: { label: "The last 24 hours", seconds: 3_600, width: "1h", buckets: 24 },
  week: { label: "The last 7 days, by hours", seconds: 3_600, width: "1h", buckets: 168 },
  month: { label: "The last 30 days", seconds: 86_400, width: "1d", buckets: 30, isByDay: true },
};

/** Names of groups in words, and the filter of *Requests* for each. */
const GROUPS: Record<string, { label: string; filter?: string }> = {
  project_id: { label: "Tenant", filter: "tenant" },
  api_key_id: { label: "Key", filter: "api_key_id" },
  model: { label: "Model", filter: "model" },
  line_item: { label: "Model or tool" },
};

/** The rows of a table: those that use or store most. */
const MAX_ROWS = 100;

interface Answer extends Page<Bucket> {
  /** The storage of each tenant. */
  stored: readonly ApiObject[];
}

/** A member of a record by a name of the address, which may be any. */
const named = <Value>(record: Record<string, Value>, name: string) =>
  Object.hasOwn(record, name) ? record[name] : undefined;

/** The choice of the filters. A kind has choices of its own: those that it lacks are its first ones. */
function choiceOf({ kind: name = "", span: time = "", measure: figure = "", group = "", tenant = "" }: Filters) {
  const kind = (named(KINDS, name) ?? KINDS.completions) as Kind;
  const spans = Object.entries(SPANS).filter(([, { isByDay = false }]) => isByDay || !kind.isByDay);
  const [, span] = (spans.find(([each]) => each === time) ?? spans[0]) as (typeof spans)[number];
  const measure = (named(kind.measures, figure) ?? Object.values(kind.measures)[0]) as Measure;
  return { kind, spans, span, measure, group: kind.groups.includes(group) ? group : "", tenant };
}

function choices(name: string, label: string, from: readonly [string, { label: string }][]): Field {
  return { name, label, kind: "choice", options: from.map(([value, each]) => [value, each.label]) };
}

async function load(filters: Filters): Promise<Answer> {
  const { kind, span, group, tenant } = choiceOf(filters);
  const ofTenant = tenant && { project_ids: tenant };
  const ofUsage = { ...lastBuckets(span), limit: String(span.buckets), ...(group && { group_by: group }), ...ofTenant };
  const ofStorage = new URLSearchParams({ group_by: "project_id", ...ofTenant });
  const [usage, storage] = await Promise.all([
    callJson(`${kind.path}?${new URLSearchParams(ofUsage)}`),
    callJson(`/v1/organization/usage/storage?${ofStorage}`),
  ]);
  const data: Bucket[] = usage.data.map((bucket: Bucket) => ({ ...bucket, id: String(bucket.start_time) }));
  const isUsed = data.some(({ results }) => results.length > 0);
  return { data: isUsed ? data : [], stored: storage.data[0].results };
}

export function usageSection() {
  const chart = new ChartView();
  const usage: Resource<Bucket, Answer> = {
    title: "Usage",
    address: "#/operate/usage",
    source: load,
    nameOf: ({ id }) => id,
    none: "Nothing was used in this time.",
    filters(chosen) {
      const { kind, spans } = choiceOf(chosen);
      const groups = kind.groups.map(
        (field) => [field, GROUPS[field] ?? { label: field }] as [string, { label: string }],
      );
      return [
        choices("kind", "Usage of", Object.entries(KINDS)),
        choices("span", "Time", spans),
        choices("measure", "Metric", Object.entries(kind.measures)),
        choices("group", "Group by", [["", { label: "Nothing" }], ...groups]),
        { name: "tenant", label: "Tenant", placeholder: "all" },
      ];
    },
    note({ data, stored }, filters) {
      const { kind, span, measure, group } = choiceOf(filters);
      const what = `${measure.label}${kind === KINDS.completions ? "" : `, ${kind.label.toLowerCase()}`}`;
      const title = `${what}, ${span.label.toLowerCase()}`;
      if (data.length > 0) chart.show({ ...chartOf(measure, data, seriesOf(data, measure, group)), title });
      return html`${data.length > 0 ? chart.element : nothing}
        ${group && kind.measures.num_errors ? sumsTemplate(data, group, span.label) : nothing} ${storedTemplate(stored)}`;
    },
    isFolded: true,
    columns(data, filters) {
      const { measure, group } = choiceOf(filters);
      const labelOf = labelsOf(data);
      const series = seriesOf(data, measure, group);
      return [["From", ({ start_time: start }) => labelOf(start)], ...columnsOf(data, measure, series)];
    },
  };
  return new ResourceList(usage);
}

/** The use and the failures of each tenant, key or model: the largest cost and use first. */
function sumsTemplate(buckets: readonly Bucket[], group: string, time: string) {
  const { label = group, filter = "" } = GROUPS[group] ?? {};
  const address = (name: string, status: string) =>
    requestsAddress({ [filter]: name, status, from: buckets[0]?.start_time });
  const results = buckets.flatMap((bucket) => bucket.results);
  const sums = [...Map.groupBy(results, (result) => String(result[group] || "–"))].map(([name, all]) => {
    const sum = (field: string): number => all.reduce((total, result) => total + (result[field] ?? 0), 0);
    return { name, sum, cost: sum("cost_usd"), requests: sum("num_model_requests"), errors: sum("num_errors") };
  });
  sums.sort((one, other) => other.cost - one.cost || other.requests - one.requests || other.errors - one.errors);
  return largest(
    `${label === "Key" ? "Keys" : `${label}s`}, ${time.toLowerCase()}`,
    [
      [label, ({ name }) => html`<a href=${address(name, "")}>${name}</a>`],
      ["Requests", ({ requests }) => count(requests), "number"],
      [
        "Errors",
        ({ name, errors }) => (errors > 0 ? html`<a href=${address(name, "error")}>${count(errors)}</a>` : "0"),
        "number",
      ],
      ["Input tokens", ({ sum }) => count(sum("input_tokens")), "number"],
      ["Output tokens", ({ sum }) => count(sum("output_tokens")), "number"],
      [
        "Time on average",
        ({ sum, requests }) => duration(requests > 0 ? sum("duration_ms_sum") / requests : null),
        "number",
      ],
      ["Cost", ({ cost }) => money(cost), "number"],
    ],
    sums,
    "used less",
  );
}

/** The storage of tenants now, those that store most first. */
function storedTemplate(tenants: readonly ApiObject[]) {
  const storing = tenants.filter(({ usage_bytes: bytes, limits }) => bytes > 0 || limits !== null);
  if (storing.length === 0) return nothing;
  const column = (heading: string, field: string, limit: string, inWords: (value: number) => string = count) =>
    [
      heading,
      (tenant: ApiObject) =>
        `${inWords(tenant[field])}${tenant.limits?.[limit] === undefined ? "" : ` of ${inWords(tenant.limits[limit])}`}`,
      "number",
    ] as const;
  return largest(
    "Stored now",
    [
      ["Tenant", ({ project_id: tenant }) => tenant],
      column("Bytes", "usage_bytes", "stored_bytes", size),
      column("Responses", "num_responses", "stored_responses"),
      column("Conversations", "num_conversations", "stored_conversations"),
    ],
    storing.toSorted((one, other) => other.usage_bytes - one.usage_bytes),
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
