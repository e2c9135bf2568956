import { html, nothing, render } from "lit-html";
import { callJson } from "./api.js";
import { faultNotice, messageOf } from "./dialogs.js";
import { count, size } from "./format.js";
import { barPlot, MAX_SERIES } from "./plot.js";

/**
 * The usage over time: `GET /v1/organization/usage/completions`.
 *
 * @typedef {object} Result
 * @property {number} input_tokens
 * @property {number} input_cached_tokens
 * @property {number} output_tokens
 * @property {number} num_model_requests
 * @property {number} cost_usd
 * @property {string | null} project_id
 * @property {string | null} api_key_id
 * @property {string | null} model
 *
 * @typedef {{ start_time: number, results: Result[] }} Bucket
 *
 * and the present storage: `GET /v1/organization/usage/storage`.
 *
 * @typedef {object} Stored
 * @property {number} usage_bytes
 * @property {number} num_responses
 * @property {number} num_conversations
 * @property {string} project_id
 * @property {{ stored_bytes?: number, stored_responses?: number, stored_conversations?: number } | null} limits
 *
 * @typedef {(result: Result) => number} Amount
 */

/** @type {Record<string, { label: string, seconds: number, width: "1h" | "1d", buckets: number }>} */
const SPANS = {
  day: { label: "The last 24 hours", seconds: 3_600, width: "1h", buckets: 24 },
  week: { label: "The last 7 days, by hours", seconds: 3_600, width: "1h", buckets: 168 },
  month: { label: "The last 30 days", seconds: 86_400, width: "1d", buckets: 30 },
};

/** @type {Record<string, { label: string, field: "project_id" | "api_key_id" | "model" | undefined }>} */
const GROUPS = {
  kind: { label: "Input and output", field: undefined },
  tenant: { label: "Tenant", field: "project_id" },
  key: { label: "Key", field: "api_key_id" },
  model: { label: "Model", field: "model" },
};

/** @type {Record<string, { label: string, of: Amount }>} */
const MEASURES = {
  tokens: { label: "Tokens", of: ({ input_tokens: input, output_tokens: output }) => input + output },
  requests: { label: "Requests", of: ({ num_model_requests: requests }) => requests },
  cost: { label: "Cost in US dollars", of: ({ cost_usd: cost }) => cost },
};

/** The kinds of tokens, shown if the tokens are not grouped. @type {[name: string, of: Amount][]} */
const KINDS = [
  ["Cached input", ({ input_cached_tokens: cached }) => cached],
  ["Other input", ({ input_tokens: input, input_cached_tokens: cached }) => input - cached],
  ["Output", ({ output_tokens: output }) => output],
];

/** The number of tenants shown: those that store most. */
const MAX_STORING = 100;

const COUNTED = html`Only keys and tenants with a counted limit, or with <code>track_usage</code>, are counted.`;

/** @param {HTMLElement} element @returns {import("./operate.js").Section} */
export function usageSection(element) {
  const chosen = { span: "day", group: "kind", measure: "tokens", tenant: "" };
  /** @type {Bucket[] | undefined} */
  let buckets;
  /** @type {Stored[]} */
  let stored = [];
  let fault = "";
  let asked = 0;

  async function load() {
    asked += 1;
    const question = asked;
    const { seconds, width, buckets: limit } = /** @type {(typeof SPANS)[string]} */ (SPANS[chosen.span]);
    const field = GROUPS[chosen.group]?.field;
    const end = Math.floor(Date.now() / 1_000);
    const start = Math.floor(end / seconds) * seconds - (limit - 1) * seconds;
    const query = new URLSearchParams({ start_time: String(start), bucket_width: width, limit: String(limit) });
    if (field) query.set("group_by", field);
    if (chosen.tenant) query.set("project_ids", chosen.tenant);
    try {
      const ofTenant = chosen.tenant ? `&project_ids=${encodeURIComponent(chosen.tenant)}` : "";
      const [page, storage] = await Promise.all([
        callJson(`/v1/organization/usage/completions?${query}`),
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

  /** @param {Event} event */
  function changed(event) {
    event.preventDefault();
    const data = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    for (const name of /** @type {(keyof typeof chosen)[]} */ (Object.keys(chosen))) {
      chosen[name] = String(data.get(name) ?? "").trim();
    }
    void load();
  }

  function draw() {
    const options = (/** @type {Record<string, { label: string }>} */ choices, /** @type {string} */ now) =>
      Object.entries(choices).map(
        ([value, { label }]) => html`<option value=${value} ?selected=${value === now}>${label}</option>`,
      );
    render(
      html`
        <div class="section-heading"><h2>Usage</h2></div>
        <form class="filters" @change=${changed} @submit=${changed}>
          <div><label for="usage-span">Time</label><select id="usage-span" name="span">${options(SPANS, chosen.span)}</select></div>
          <div><label for="usage-measure">Metric</label><select id="usage-measure" name="measure">${options(MEASURES, chosen.measure)}</select></div>
          <div><label for="usage-group">Group by</label><select id="usage-group" name="group">${options(GROUPS, chosen.group)}</select></div>
          <div><label for="usage-tenant">Tenant</label><input dir="auto" id="usage-tenant" name="tenant" autocomplete="off" spellcheck="false" placeholder="all" /></div>
        </form>
        ${faultNotice(fault)}
        ${buckets ? [usageTemplate(buckets), storedTemplate(stored)] : fault ? nothing : html`<p class="note">Loading…</p>`}
      `,
      element,
    );
  }

  /** @param {readonly Bucket[]} shown */
  function usageTemplate(shown) {
    if (shown.every(({ results }) => results.length === 0)) {
      return html`<p class="note">Nothing was counted in this time. ${COUNTED}</p>`;
    }
    const { label, of } = /** @type {(typeof MEASURES)[string]} */ (MEASURES[chosen.measure]);
    const field = GROUPS[chosen.group]?.field;
    const series = field
      ? byGroup(shown, field, of)
      : chosen.measure === "tokens"
        ? byKind(shown)
        : [whole(shown, label, of)];
    const labels = shown.map(({ start_time: start }) => labelOf(start));
    const total = series.reduce((sum, { values }) => sum + values.reduce((rest, value) => rest + value, 0), 0);
    const title = `${label}, ${SPANS[chosen.span]?.label.toLowerCase()}: ${figure(total)} counted`;
    return html`
      <figure class="card stack usage">
        <figcaption>${title}</figcaption>
        <p class="note">${COUNTED}</p>
        ${barPlot({ title, labels, series })}
        <ul class="legend">${series.map(({ name }, index) => html`<li><span class=${`swatch series-${index}`} aria-hidden="true"></span>${name}</li>`)}</ul>
      </figure>
      <details class="card">
        <summary>The figures as a table</summary>
        <div class="wide" tabindex="0" role="region" aria-label="Usage">
          <table>
            <thead><tr><th scope="col">From</th>${series.map(({ name }) => html`<th scope="col" class="number">${name}</th>`)}</tr></thead>
            <tbody>
              ${labels.map(
                (from, row) =>
                  html`<tr><th scope="row">${from}</th>${series.map(({ values }) => html`<td class="number">${figure(values[row] ?? 0)}</td>`)}</tr>`,
              )}
            </tbody>
          </table>
        </div>
      </details>
    `;
  }

  /** @param {number} start Unix seconds */
  function labelOf(start) {
    const date = new Date(start * 1_000);
    const day = { day: "numeric", month: "short" };
    const hour = { hour: "2-digit", minute: "2-digit" };
    /** @type {Intl.DateTimeFormatOptions} */
    // A day is one of UTC's: so the server counts.
    const options = /** @type {any} */ (
      chosen.span === "month" ? { ...day, timeZone: "UTC" } : chosen.span === "week" ? { ...day, ...hour } : hour
    );
    return date.toLocaleString("en-GB", options);
  }

  return { show: () => void load() };
}

/** The storage of tenants now, those that store most first. @param {readonly Stored[]} tenants */
function storedTemplate(tenants) {
  const storing = tenants
    .filter(({ usage_bytes: bytes, limits }) => bytes > 0 || limits !== null)
    .sort((one, other) => other.usage_bytes - one.usage_bytes);
  if (storing.length === 0) return nothing;
  const cell = (
    /** @type {number} */ value,
    /** @type {number | undefined} */ limit,
    inWords = /** @type {(value: number) => string} */ (count),
  ) => html`<td class="number">${inWords(value)}${limit === undefined ? nothing : ` of ${inWords(limit)}`}</td>`;
  return html`
    <section class="card stack">
      <h3>Stored now</h3>
      <div class="wide" tabindex="0" role="region" aria-label="Stored now">
        <table>
          <thead><tr><th scope="col">Tenant</th><th scope="col" class="number">Bytes</th><th scope="col" class="number">Responses</th><th scope="col" class="number">Conversations</th></tr></thead>
          <tbody>
            ${storing
              .slice(0, MAX_STORING)
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
      ${storing.length > MAX_STORING ? html`<p class="note">${count(storing.length - MAX_STORING)} others store less.</p>` : nothing}
    </section>
  `;
}

/** @param {number} value */
function figure(value) {
  return count(Number(value.toPrecision(8)));
}

/** @param {readonly Bucket[]} buckets @param {string} name @param {Amount} of @returns {import("./plot.js").Series} */
function whole(buckets, name, of) {
  return { name, values: buckets.map(({ results }) => results.reduce((sum, result) => sum + of(result), 0)) };
}

/** @param {readonly Bucket[]} buckets */
function byKind(buckets) {
  return KINDS.map(([name, of]) => whole(buckets, name, of));
}

/**
 * The largest groups, and all others together.
 * @param {readonly Bucket[]} buckets
 * @param {"project_id" | "api_key_id" | "model"} field
 * @param {Amount} of
 * @returns {import("./plot.js").Series[]}
 */
function byGroup(buckets, field, of) {
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  for (const [at, { results }] of buckets.entries()) {
    for (const result of results) {
      const name = result[field] || "–";
      const values = groups.get(name) ?? buckets.map(() => 0);
      groups.set(name, values);
      values[at] = (values[at] ?? 0) + of(result);
    }
  }
  const sum = (/** @type {readonly number[]} */ values) => values.reduce((total, value) => total + value, 0);
  const sorted = [...groups]
    .map(([name, values]) => ({ name, values }))
    .sort((one, other) => sum(other.values) - sum(one.values));
  if (sorted.length <= MAX_SERIES) return sorted;
  const rest = sorted.slice(MAX_SERIES - 1);
  const others = buckets.map((_, at) => rest.reduce((total, { values }) => total + (values[at] ?? 0), 0));
  return [...sorted.slice(0, MAX_SERIES - 1), { name: `${count(rest.length)} others`, values: others }];
}
