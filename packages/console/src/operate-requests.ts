import { html, nothing } from "lit-html";
import type { RequestList } from "../api-types.d.ts";
import { noted } from "./cards-table.ts";
import { count, duration, moment, money } from "./format.ts";
import { apiQuery, filterLink, LONG_WAIT_MS } from "./request-filters.ts";
import { showTimes } from "./request-times.ts";
import { type Resource, ResourceList } from "./resource.ts";
import { may } from "./rights.ts";
import { session } from "./session.ts";

/** The requests of all tenants, newest first, without their contents: `GET /v1/admin/requests`. */

type RequestSummary = RequestList["data"][number];

/** `refused`: answered with an error before there was a response. */
const STATUSES = ["completed", "incomplete", "failed", "cancelled", "refused"];

const REQUESTS: Resource<RequestSummary> = {
  title: "Requests",
  source: "/v1/admin/requests",
  address: "#/operate/requests",
  nameOf: ({ id }) => id,
  none: "There was no request yet.",
  noneFiltered: "No request matches all filters.",
  filters: [
    { name: "tenant", label: "Tenant", placeholder: "all" },
    { name: "api_key_id", label: "Key", placeholder: "all" },
    { name: "model", label: "Model", placeholder: "all" },
    { name: "server", label: "Model server", placeholder: "all" },
    {
      name: "status",
      label: "Status",
      kind: "choice",
      options: [["", "any"], ["error", "with an error"], ...STATUSES.map((status) => [status, status] as const)],
    },
    { name: "slow", label: "Took at least, seconds", kind: "number", step: "any", placeholder: "any" },
    { name: "from", label: "From", kind: "time" },
    { name: "until", label: "Until", kind: "time" },
  ],
  queryOf: apiQuery,
  columns: [
    ["Time", (request) => noted(moment(request.created_at), request.endpoint, idTemplate(request))],
    ["Status", outcomeTemplate],
    ["Took", timesTemplate, "number"],
    ["Tenant and key", ({ tenant, api_key_id: key }) => noted(link("tenant", tenant), key && link("api_key_id", key))],
    ["Model and server", ({ model, server }) => noted(link("model", model), server && link("server", server))],
    ["Tokens and cost", usageTemplate, "number"],
  ],
};

export function requestsSection() {
  const list = new ResourceList(REQUESTS);
  list.element.classList.add("requests");
  return list;
}

const link = (name: string, value: string | null) => (value ? filterLink(name, value) : "–");

/** A root key alone has no responses to open: it sees the times of one. */
function idTemplate({ id, response_id: response, tenant, status }: RequestSummary) {
  if (!response || status === "refused") return html`<code>${response ?? id}</code>`;
  if (session.who !== "admin") return html`<a href=${`#/responses/${response}`}><code>${response}</code></a>`;
  if (!may("retrieveResponseDetails")) return html`<code>${response}</code>`;
  return html`<button type="button" class="plain -ms-2 text-start" title="Where the time went" @click=${() => void showTimes(response, tenant)}><code>${response}</code></button>`;
}

/** How it ended, and what went wrong: as the client was told, and as the model server said it. */
function outcomeTemplate({ status, http_status: http, error, attempts }: RequestSummary) {
  return html`<span class="tag ${status === "completed" ? "good" : "bad"}">${status}</span>
    ${http >= 400 ? html`<span class="tag">${http}</span>` : nothing}
    ${attempts > 1 ? html`<span class="tag">${attempts} attempts</span>` : nothing}
    ${error ? html`<p class="note" dir="auto">${error.message ?? error.code}</p>` : nothing}
    ${error?.upstream ? html`<p class="mt-1 font-mono text-xs text-bad" dir="auto"><span class="unseen">The model server said: </span>${error.upstream}</p>` : nothing}`;
}

function timesTemplate({
  duration_ms: took,
  first_token_ms: first,
  waited_ms: waited,
  queued_ms: queued,
}: RequestSummary) {
  return noted(
    duration(took),
    first !== null && `first token ${duration(first)}`,
    waited >= LONG_WAIT_MS && html`<span class="text-warn">waited for its conversation ${duration(waited)}</span>`,
    queued >= LONG_WAIT_MS && html`<span class="text-warn">waited in the queue ${duration(queued)}</span>`,
  );
}

function usageTemplate({ usage, cost_usd: cost }: RequestSummary) {
  if (!usage) return "–";
  const { input_tokens: input, cached_tokens: cached, output_tokens: output } = usage;
  return noted(
    `${count(input)} → ${count(output)}`,
    cached > 0 && `${count(cached)} cached`,
    cost !== null && money(cost),
  );
}
