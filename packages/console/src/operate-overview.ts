import { html, nothing, render } from "lit-html";
import type { Overview } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { type Column, figuresTable } from "./cards-table.ts";
import type { Chart } from "./chart.ts";
import { ChartView, labelOfTime, shortly } from "./chart-view.ts";
import { faultNotice, messageOf } from "./dialogs.ts";
import { count, duration, size } from "./format.ts";
import { figures, type Part, partElement } from "./list-and-one.ts";
import { Refresher } from "./refresher.ts";
import { requestsAddress } from "./request-filters.ts";

/** How the deployment does, now and over time: `GET /v1/admin/overview`. */

const EVERY_MS = 30_000;

/** `seconds`: of a bucket. */
const RANGES: Record<string, { label: string; inWords: string; width: string; seconds: number; buckets: number }> = {
  hour: { label: "1 hour", inWords: "the last hour", width: "1m", seconds: 60, buckets: 60 },
  day: { label: "24 hours", inWords: "the last 24 hours", width: "5m", seconds: 300, buckets: 288 },
  week: { label: "7 days", inWords: "the last 7 days", width: "1h", seconds: 3_600, buckets: 168 },
  month: { label: "30 days", inWords: "the last 30 days", width: "1d", seconds: 86_400, buckets: 30 },
};

type Bucket = Overview["data"][number];

type Now = Overview["now"];

type Figure = (bucket: Bucket) => number | null;

const P50 = "half took at most (p50)";
const P95 = "95 of 100 took at most (p95)";

const perSecond = (value: number) => `${shortly(value)} a second`;

/** The charts, by name. */
const CHARTS: {
  name: string;
  series: { name: string; of: Figure; colour?: number }[];
  inWords: (value: number) => string;
  inShort?: (value: number) => string;
  isCount?: true;
}[] = [
  {
    name: "Requests",
    series: [
      { name: "answered", of: ({ requests, errors }) => requests - errors },
      { name: "errors", of: ({ errors }) => errors, colour: 4 },
    ],
    inWords: count,
    inShort: shortly,
    isCount: true,
  },
  {
    name: "Time of a request",
    series: [
      { name: P50, of: (bucket) => bucket.p50_ms },
      { name: P95, of: (bucket) => bucket.p95_ms },
    ],
    inWords: duration,
  },
  {
    name: "Time to the first token",
    series: [
      { name: P50, of: (bucket) => bucket.p50_first_token_ms },
      { name: P95, of: (bucket) => bucket.p95_first_token_ms },
    ],
    inWords: duration,
  },
  {
    name: "Output tokens a second of one answer",
    series: [{ name: "output tokens a second", of: (bucket) => bucket.output_tokens_per_second }],
    inWords: perSecond,
    inShort: shortly,
  },
  {
    name: "Most running and waiting",
    series: [
      { name: "running", of: (bucket) => bucket.most_in_flight },
      { name: "waiting", of: (bucket) => bucket.most_waiting, colour: 4 },
    ],
    inWords: count,
    inShort: shortly,
    isCount: true,
  },
  {
    name: "Model servers that were down",
    series: [{ name: "down", of: ({ servers_down: down }) => down.length, colour: 4 }],
    inWords: count,
    inShort: shortly,
    isCount: true,
  },
  {
    name: "Free disk space",
    series: [{ name: "free", of: (bucket) => bucket.least_free_disk_bytes }],
    inWords: size,
  },
];

/** The columns of the table. */
const COLUMNS: Column<Bucket>[] = [
  ["Requests", ({ requests }) => count(requests), "number"],
  ["Errors", ({ errors }) => count(errors), "number"],
  ["Time, p50", ({ p50_ms: ms }) => duration(ms), "number"],
  ["Time, p95", ({ p95_ms: ms }) => duration(ms), "number"],
  ["First token, p50", ({ p50_first_token_ms: ms }) => duration(ms), "number"],
  ["First token, p95", ({ p95_first_token_ms: ms }) => duration(ms), "number"],
  ["Input tokens", ({ input_tokens: tokens }) => count(tokens), "number"],
  ["Output tokens", ({ output_tokens: tokens }) => count(tokens), "number"],
  ["Most running", ({ most_in_flight: most }) => count(most), "number"],
  ["Most waiting", ({ most_waiting: most }) => count(most), "number"],
  ["Servers down", ({ servers_down: down }) => down.join(", ") || "–"],
  ["Free disk", ({ least_free_disk_bytes: free }) => size(free), "number"],
];

export function overviewSection(): Part {
  const element = partElement();
  let chosen = "day";
  let buckets: Bucket[] | undefined;
  let now: Now | undefined;
  let fault = "";
  const charts = CHARTS.map((kind) => ({ kind, view: new ChartView() }));
  const refresher = new Refresher(load, EVERY_MS);

  const range = () => RANGES[chosen] as (typeof RANGES)[string];

  const labelOf = (time: number) => labelOfTime(time, range().seconds, range().seconds * range().buckets);

  async function load() {
    const asked = chosen;
    const { width, seconds, buckets: number } = range();
    const end = (Math.floor(Date.now() / 1_000 / seconds) + 1) * seconds;
    const query = new URLSearchParams({
      start_time: String(end - number * seconds),
      end_time: String(end),
      bucket_width: width,
    });
    try {
      const page = await callJson(`/v1/admin/overview?${query}`);
      if (asked !== chosen) return;
      ({ data: buckets, now } = page);
      fault = "";
    } catch (error) {
      if (asked !== chosen) return;
      fault = messageOf(error);
    }
    draw();
    for (const { kind, view } of charts) view.show(chartOf(kind, buckets ?? []));
  }

  function chartOf(
    { name, series, inWords, inShort = inWords, isCount }: (typeof CHARTS)[number],
    shown: Bucket[],
  ): Chart {
    return {
      title: name,
      times: shown.map(({ start_time: start }) => start),
      series: series.map(({ of, ...each }) => ({ ...each, values: shown.map(of) })),
      ...(isCount && { isStacked: true, isWhole: true }),
      ...{ labelOf, inWords, inShort, group: "overview" },
      pick: (index) => {
        const bucket = shown[index];
        if (bucket) location.hash = addressOf(bucket);
      },
    };
  }

  function draw() {
    render(
      html`
        <div class="section-heading buttons spread">
          <h2>Overview</h2>
          <nav class="buttons" aria-label="Time">
            ${Object.entries(RANGES).map(([name, { label }]) => html`<a class="button" href=${`#/operate/overview?time=${name}`} aria-current=${name === chosen ? "true" : nothing}>${label}</a>`)}
          </nav>
        </div>
        ${faultNotice(fault)} ${now ? nowTemplate(now) : nothing}
        ${buckets ? bucketsTemplate(buckets) : fault ? nothing : html`<p class="note">Loading…</p>`}
      `,
      element,
    );
  }

  function bucketsTemplate(shown: readonly Bucket[]) {
    const sum = (of: (bucket: Bucket) => number) => shown.reduce((total, bucket) => total + of(bucket), 0);
    const [requests, errors] = [sum((bucket) => bucket.requests), sum((bucket) => bucket.errors)];
    return html`
      <p>
        In ${range().inWords}: <a href=${requestsAddress({ from: shown[0]?.start_time })}>${count(requests)} requests</a>,
        <a href=${requestsAddress({ from: shown[0]?.start_time, status: "error" })}>${count(errors)} of them with an error</a>; ${count(sum((bucket) => bucket.input_tokens))} input and ${count(sum((bucket) => bucket.output_tokens))} output tokens.
        <span class="note">A click on a chart opens the requests of that time.</span>
      </p>
      <div class="columns">${charts.map(({ view }) => view.element)}</div>
      ${figuresTable("Overview", [["From", (bucket) => html`<a href=${addressOf(bucket)}>${labelOf(bucket.start_time)}</a>`], ...COLUMNS], shown)}
    `;
  }

  return {
    element,
    show(query) {
      const { time = "day" } = Object.fromEntries(query);
      if (time in RANGES && time !== chosen) {
        chosen = time;
        buckets = undefined;
      }
      draw();
      refresher.start();
    },
    hide: () => refresher.stop(),
  };
}

/** The requests of a bucket. */
function addressOf({ start_time: from, end_time: until }: Bucket) {
  return requestsAddress({ from, until });
}

function nowTemplate({ in_flight: running, waiting, servers, disk }: Now) {
  return html`<section class="card stack" aria-label="Now">
    ${figures([
      ["Requests now", count(running)],
      ["Waiting in the queue", waiting > 0 ? html`<span class="tag bad">${count(waiting)}</span>` : count(waiting)],
      ...servers.map((server) => [`Model server ${server.name}`, serverTemplate(server)] as const),
      ...(disk ? [["Disk", diskTemplate(disk)] as const] : []),
    ])}
  </section>`;
}

function serverTemplate({ status, in_flight: running, waiting, load }: Now["servers"][number]) {
  return html`<a class="tag ${status === "ok" ? "good" : "bad"}" href="#/operate/servers">${status}</a>
    ${count(running)} running${waiting > 0 ? `, ${count(waiting)} waiting` : nothing}${load === null ? nothing : `, load ${count(load)}`}`;
}

function diskTemplate({ free_bytes: free, low }: NonNullable<Now["disk"]>) {
  return html`${free === null ? "full" : `${size(free)} free`} ${low ? html`<span class="tag bad">low: new requests are refused</span>` : nothing}`;
}
