import { html, nothing, render } from "lit-html";
import { cardsTable, number } from "./cards-table.ts";
import { count, duration, moment, money } from "./format.ts";
import { PagedList } from "./paged-list.ts";
import { localTime, type RequestFilters, requestsAddress, requestsQuery, secondsOf } from "./request-filters.ts";
import { session } from "./session.ts";
import type { Section } from "./view.ts";

/** The requests of all tenants, newest first, without their contents: `GET /v1/admin/requests`. */

interface RequestSummary {
  id: string;
  /** Unix seconds. */
  created_at: number;
  tenant: string;
  api_key_id: string | null;
  endpoint: string;
  http_status: number;
  status: string;
  transport: string;
  response_id: string | null;
  model: string | null;
  server: string | null;
  duration_ms: number;
  first_token_ms: number | null;
  waited_ms: number;
  queued_ms: number;
  attempts: number;
  usage: { input_tokens: number; cached_tokens: number; output_tokens: number } | null;
  cost_usd: number | null;
  error: { code: string | null; message: string; upstream: string | null } | null;
}

/** `refused`: answered with an error before there was a response. */
const STATUSES = ["completed", "incomplete", "failed", "cancelled", "refused"];

const TEXTS: [name: keyof RequestFilters, label: string][] = [
  ["tenant", "Tenant"],
  ["api_key_id", "Key"],
  ["model", "Model"],
  ["server", "Model server"],
];

const TIMES: [name: "from" | "until", label: string][] = [
  ["from", "From"],
  ["until", "Until"],
];

export function requestsSection(element: HTMLElement): Section {
  let query = new URLSearchParams();
  const list: PagedList<RequestSummary> = new PagedList("/v1/admin/requests", draw);

  function search(event: SubmitEvent) {
    event.preventDefault();
    const { from, until, ...given } = Object.fromEntries(new FormData(event.currentTarget as HTMLFormElement));
    const words = Object.entries(given).map(([name, value]) => [name, String(value).trim()]);
    const times = { from: secondsOf(String(from)), until: secondsOf(String(until)) };
    location.hash = requestsAddress({
      ...Object.fromEntries(words),
      ...(times.from > 0 && { from: times.from }),
      ...(times.until > 0 && { until: times.until }),
    });
  }

  /** The same address with one more filter. */
  function filtered(name: string, value: string) {
    const more = new URLSearchParams(query);
    more.set(name, value);
    return `#/operate/requests?${more}`;
  }

  const filterLink = (name: string, value: string) => html`<a href=${filtered(name, value)} dir="auto">${value}</a>`;

  function draw() {
    const none = query.size > 0 ? "No request matches all filters." : "There was no request yet.";
    render(
      html`
        <div class="section-heading">
          <h2>Requests</h2>
          <button type="button" @click=${() => void list.refresh()}>Refresh</button>
        </div>
        ${formTemplate()} ${list.template(none, tableTemplate)}
      `,
      element,
    );
  }

  function formTemplate() {
    const value = (name: string) => query.get(name) ?? "";
    const text = (name: string, label: string) =>
      html`<div><label for=${`requests-${name}`}>${label}</label><input dir="auto" id=${`requests-${name}`} name=${name} placeholder="all" spellcheck="false" autocomplete="off" .value=${value(name)} /></div>`;
    return html`<form class="card filters" role="search" aria-label="Requests" @submit=${search}>
      ${TEXTS.map(([name, label]) => text(name, label))}
      <div>
        <label for="requests-status">Status</label>
        <select id="requests-status" name="status">
          <option value="">any</option>
          ${STATUSES.map((status) => html`<option value=${status} ?selected=${status === value("status")}>${status}</option>`)}
        </select>
      </div>
      <div><label for="requests-slow">Took at least, seconds</label><input id="requests-slow" name="slow" type="number" min="0" step="any" placeholder="any" .value=${value("slow")} /></div>
      ${TIMES.map(([name, label]) => html`<div><label for=${`requests-${name}`}>${label}</label><input id=${`requests-${name}`} name=${name} type="datetime-local" step="1" .value=${localTime(query.get(name))} /></div>`)}
      <div class="buttons">
        <button class="primary" type="submit">Search</button>
        ${query.size > 0 ? html`<a class="button" href="#/operate/requests">Clear</a>` : nothing}
      </div>
    </form>`;
  }

  function tableTemplate(requests: readonly RequestSummary[]) {
    return html`<div class="requests">
      ${cardsTable(
        "Requests",
        [
          "Time",
          "Tenant and key",
          "Model and server",
          "Status",
          number("Took"),
          number("First token"),
          number("Waited"),
          number("Tokens and cost"),
        ],
        requests.map(rowTemplate),
      )}
    </div>`;
  }

  function rowTemplate(request: RequestSummary) {
    const { created_at: created, endpoint, tenant, api_key_id: key, model, server, first_token_ms: first } = request;
    return html`<tr>
      <th scope="row">
        ${moment(created)}
        <p class="note">${endpoint}</p>
        <p class="note">${idTemplate(request)}</p>
      </th>
      <td data-label="Tenant and key">${filterLink("tenant", tenant)} ${key ? html`<p class="note">${filterLink("api_key_id", key)}</p>` : nothing}</td>
      <td data-label="Model and server">${model ? filterLink("model", model) : "–"} ${server ? html`<p class="note">${filterLink("server", server)}</p>` : nothing}</td>
      <td data-label="Status" class="request-status">${outcomeTemplate(request)}</td>
      <td class="number" data-label="Took">${duration(request.duration_ms)}</td>
      <td class="number" data-label="First token">${first === null ? "–" : duration(first)}</td>
      <td class="number" data-label="Waited">${waitedTemplate(request)}</td>
      <td class="number" data-label="Tokens and cost">${usageTemplate(request)}</td>
    </tr>`;
  }

  return {
    show(shown) {
      if (String(shown) !== String(query)) list.filter = requestsQuery(shown);
      query = shown;
      draw();
      void list.refresh();
    },
  };
}

/** A root key alone has no responses to open. */
function idTemplate({ id, response_id: response }: RequestSummary) {
  const shown = response ?? id;
  return response && session.who !== "admin"
    ? html`<a href=${`#/responses/${response}`}><code>${shown}</code></a>`
    : html`<code>${shown}</code>`;
}

/** How it ended, and what went wrong: as the client was told, and as the model server said it. */
function outcomeTemplate({ status, http_status: http, error, attempts }: RequestSummary) {
  return html`<span class="tag ${status === "completed" ? "good" : "bad"}">${status}</span>
    ${http >= 400 ? html`<span class="tag">${http}</span>` : nothing} ${attempts > 1 ? html`<span class="tag">${attempts} attempts</span>` : nothing}
    ${error ? html`<p class="note" dir="auto">${error.message}</p>` : nothing}
    ${error?.upstream ? html`<p class="upstream-error" dir="auto"><span class="unseen">The model server said: </span>${error.upstream}</p>` : nothing}`;
}

function waitedTemplate({ waited_ms: waited, queued_ms: queued }: RequestSummary) {
  if (waited === 0 && queued === 0) return "–";
  return [
    waited > 0 ? html`<p><span class="note">conversation</span> ${duration(waited)}</p>` : nothing,
    queued > 0 ? html`<p><span class="note">queue</span> ${duration(queued)}</p>` : nothing,
  ];
}

function usageTemplate({ usage, cost_usd: cost }: RequestSummary) {
  if (!usage) return "–";
  return html`${count(usage.input_tokens)} → ${count(usage.output_tokens)}
    ${usage.cached_tokens > 0 ? html`<p class="note">${count(usage.cached_tokens)} cached</p>` : nothing}
    ${cost === null ? nothing : html`<p class="note">${money(cost)}</p>`}`;
}
