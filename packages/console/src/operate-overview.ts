import { html, nothing } from "lit-html";
import type { Overview } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { ChartView } from "./chart-view.ts";
import { count, size } from "./format.ts";
import { figures } from "./list-and-one.ts";
import { type Bucket, chartOf, columnsOf, labelsOf, lastBuckets, type Measure, seriesOf, TIMES } from "./measures.ts";
import type { Page } from "./paged-list.ts";
import { requestsAddress } from "./request-filters.ts";
import { type Resource, ResourceList } from "./resource.ts";

/** How the deployment does, now and over time: `GET /v1/admin/overview`. */

/** `seconds`: of a bucket. */
const RANGES: Record<string, { label: string; inWords: string; width: string; seconds: number; buckets: number }> = {
  hour: { label: "1 hour", inWords: "the last hour", width: "1m", seconds: 60, buckets: 60 },
  day: { label: "24 hours", inWords: "the last 24 hours", width: "5m", seconds: 300, buckets: 288 },
  week: { label: "7 days", inWords: "the last 7 days", width: "1h", seconds: 3_600, buckets: 168 },
  month: { label: "30 days", inWords: "the last 30 days", width: "1d", seconds: 86_400, buckets: 30 },
};

const MEASURES: readonly Measure[] = [
  {
    label: "Requests",
    unit: "count",
    parts: [
      ["answered", ({ requests, errors }) => requests - errors],
      ["errors", "errors", 4],
    ],
  },
  ...Object.values(TIMES),
  {
    label: "Output tokens a second of one answer",
    unit: "perSecond",
    parts: [["output tokens a second", "output_tokens_per_second"]],
  },
  {
    label: "Most running and waiting",
    unit: "count",
    parts: [
      ["running", "most_in_flight"],
      ["waiting", "most_waiting", 4],
    ],
  },
  {
    label: "Model servers that were down",
    unit: "count",
    parts: [["down", ({ servers_down: down }) => down.length, 4]],
  },
  {
    label: "Tokens",
    unit: "count",
    parts: [
      ["input", "input_tokens"],
      ["output", "output_tokens"],
    ],
  },
  { label: "Free disk space", unit: "bytes", parts: [["free", "least_free_disk_bytes"]] },
];

interface Answer extends Page<Bucket> {
  now: Overview["now"];
}

const chosenOf = ({ time = "" }: { time?: string }) => (Object.hasOwn(RANGES, time) ? time : "day");

const rangeOf = (filters: { time?: string }) => RANGES[chosenOf(filters)] as (typeof RANGES)[string];

export function overviewSection() {
  const charts = MEASURES.map((measure) => ({ measure, view: new ChartView() }));
  const overview: Resource<Bucket, Answer> = {
    title: "Overview",
    async source(filters): Promise<Answer> {
      const query = new URLSearchParams(lastBuckets(rangeOf(filters)));
      const { data, now }: Overview = await callJson(`/v1/admin/overview?${query}`);
      return { data: data.map((each) => ({ id: String(each.start_time), ...each, results: [each] })), now };
    },
    nameOf: ({ id }) => id,
    none: "",
    isLive: true,
    everyMs: 30_000,
    choices: (filters) => html`<nav class="buttons" aria-label="Time">
      ${Object.entries(RANGES).map(([name, { label }]) => html`<a class="button" href=${`#/operate/overview?time=${name}`} aria-current=${name === chosenOf(filters) ? "true" : nothing}>${label}</a>`)}
    </nav>`,
    note: ({ data, now }, filters) => {
      for (const { measure, view } of charts) {
        const pick = (index: number) => {
          const bucket = data[index];
          if (bucket) location.hash = addressOf(bucket);
        };
        const chart = chartOf(measure, data, seriesOf(data, measure));
        const isStacked = measure.unit === "count";
        view.show({ ...chart, title: measure.label, note: "", isStacked, group: "overview", pick });
      }
      return html`${nowTemplate(now)} ${sumsTemplate(data, rangeOf(filters).inWords)}
        <div class="columns">${charts.map(({ view }) => view.element)}</div>`;
    },
    isFolded: true,
    columns: (data) => [
      ["From", timeTemplate(data)],
      ...MEASURES.flatMap((measure) => columnsOf(data, measure, seriesOf(data, measure), measure.label)),
      ["Servers down", ({ results: [{ servers_down: down } = {}] }) => down?.join(", ") || "–"],
    ],
  };
  return new ResourceList(overview);
}

/** The time of a bucket, which leads to its requests. */
function timeTemplate(buckets: readonly Bucket[]) {
  const labelOf = labelsOf(buckets);
  return (bucket: Bucket) => html`<a href=${addressOf(bucket)}>${labelOf(bucket.start_time)}</a>`;
}

/** The requests of a bucket. */
function addressOf({ start_time: from, results: [{ end_time: until } = {}] }: Bucket) {
  return requestsAddress({ from, until });
}

function sumsTemplate(buckets: readonly Bucket[], inWords: string) {
  const from = buckets[0]?.start_time;
  const sum = (field: string) => count(buckets.reduce((total, { results }) => total + (results[0]?.[field] ?? 0), 0));
  return html`<p>
    In ${inWords}: <a href=${requestsAddress({ from })}>${sum("requests")} requests</a>,
    <a href=${requestsAddress({ from, status: "error" })}>${sum("errors")} of them with an error</a>; ${sum("input_tokens")} input and ${sum("output_tokens")} output tokens.
    <span class="note">A click on a chart opens the requests of that time.</span>
  </p>`;
}

function nowTemplate({ in_flight: running, waiting, servers, disk }: Answer["now"]) {
  return html`<section class="card stack" aria-label="Now">
    ${figures([
      ["Requests now", count(running)],
      ["Waiting in the queue", waiting > 0 ? html`<span class="tag bad">${count(waiting)}</span>` : count(waiting)],
      ...servers.map((server) => [`Model server ${server.name}`, serverTemplate(server)] as const),
      ...(disk ? [["Disk", diskTemplate(disk)] as const] : []),
    ])}
  </section>`;
}

function serverTemplate({ status, in_flight: running, waiting, load }: Answer["now"]["servers"][number]) {
  return html`<a class="tag ${status === "ok" ? "good" : "bad"}" href="#/operate/servers">${status}</a>
    ${count(running)} running${waiting > 0 ? `, ${count(waiting)} waiting` : nothing}${load === null ? nothing : `, load ${count(load)}`}`;
}

function diskTemplate({ free_bytes: free, low }: NonNullable<Answer["now"]["disk"]>) {
  return html`${free === null ? "full" : `${size(free)} free`} ${low ? html`<span class="tag bad">low: new requests are refused</span>` : nothing}`;
}
