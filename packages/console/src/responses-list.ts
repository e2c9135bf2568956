import { html, nothing } from "lit-html";
import { until } from "lit-html/directives/until.js";
import type { ListedResponse } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { column, noted } from "./cards-table.ts";
import { count, duration, money } from "./format.ts";
import { statusTag } from "./item-view.ts";
import type { Part } from "./list-and-one.ts";
import { apiQuery, filterLink, LONG_WAIT_MS } from "./request-filters.ts";
import { type Resource, ResourceList } from "./resource.ts";
import { listsResponses, recall } from "./session.ts";

/** The tenant's stored responses, newest first, with a search and filters: `#/responses?query=…&status=…`. */

const STATUSES = ["completed", "incomplete", "failed", "cancelled", "in_progress", "queued"];

/** The list, or where the deployment has none, the responses of this tab. */
export function responsesList(): Part {
  return listsResponses() ? new ResourceList(RESPONSES) : new ResourceList(OF_THIS_TAB);
}

const RESPONSES: Resource<ListedResponse> = {
  title: "Stored responses",
  source: "/v1/responses",
  address: "#/responses",
  nameOf: ({ id }) => id,
  none: "No response is stored yet.",
  noneFiltered: "No response matches all filters.",
  everyMs: 3_000,
  isChanging: ({ status }) => status === "in_progress" || status === "queued",
  filters: [
    { name: "query", label: "Words", placeholder: "said by user or model", maxLength: 512 },
    {
      name: "status",
      label: "Status",
      kind: "choice",
      options: [["", "any"], ...STATUSES.map((status) => [status, status.replaceAll("_", " ")] as const)],
    },
    { name: "model", label: "Model", placeholder: "all" },
    { name: "metadata", label: "Metadata", placeholder: "key=value", pattern: ["[^=]+=.*", "key=value"] },
    { name: "conversation", label: "Conversation", placeholder: "conv_…" },
    { name: "from", label: "From", kind: "time" },
    { name: "until", label: "Until", kind: "time" },
  ],
  queryOf: apiQuery,
  columns: [
    ["Response", saidTemplate],
    [
      "Status",
      ({ status, background }) =>
        html`${statusTag(status)}${background ? html` <span class="tag">background</span>` : nothing}`,
    ],
    ["Model", ({ model }) => filterLink("model", model)],
    ["Conversation", ({ conversation }) => (conversation ? conversationTemplate(conversation.id) : "–")],
    column("created_at"),
    [
      "Time",
      ({ duration_ms: took, waited_ms: waited }) =>
        noted(duration(took), (waited ?? 0) >= LONG_WAIT_MS && `waited ${duration(waited)}`),
      "number",
    ],
    [
      "Tokens",
      ({ usage }) => (usage ? html`${count(usage.input_tokens)} → ${count(usage.output_tokens)}` : "–"),
      "number",
    ],
    ["Cost", ({ cost_usd: cost }) => (cost === null ? "–" : money(cost)), "number"],
  ],
};

/** A turn that this tab keeps, as far as it is stored. */
type KeptTurn = { id: string; text: string };

const OF_THIS_TAB: Resource<KeptTurn> = {
  title: "Responses of this tab",
  async source() {
    const turns: KeptTurn[] = recall("turns") ?? [];
    return { data: turns.filter(({ id }) => id !== undefined).reverse() };
  },
  nameOf: ({ id }) => id,
  none: "There are none yet. You can open any stored response of your tenant by its id.",
  note: () =>
    html`<p class="notice">This deployment does not list responses: <code>RESPONSE_INDEX=true</code> turns that on.</p>`,
  columns: [
    ["Response", ({ id }) => html`<a href=${`#/responses/${id}`}><code>${id}</code></a>`],
    ["Question", ({ text }) => html`<span class="line-clamp-2 wrap-anywhere" dir="auto">${text}</span>`],
  ],
};

function saidTemplate({ id, input, output, metadata }: ListedResponse) {
  return html`<a class="line-clamp-2 wrap-anywhere" href=${`#/responses/${id}`} dir="auto">${input?.text || id}</a>
    <p class="note line-clamp-2 wrap-anywhere" dir="auto">${output?.text ?? ""}</p>
    ${Object.entries(metadata ?? {}).map(([key, value]) => html`<span class="tag">${filterLink("metadata", `${key}=${value}`, `${key}: ${value}`)}</span> `)}`;
}

/** The names of conversations, which are asked for one after another. */
const names: Map<string, Promise<string>> = new Map();
let last: Promise<unknown> = Promise.resolve();

function conversationTemplate(id: string) {
  const name = names.get(id) ?? last.then(() => askName(id));
  names.set(id, name);
  last = name;
  return html`<span class="line-clamp-2 wrap-anywhere">${filterLink("conversation", id, until(name, id))}</span>`;
}

/** The name of a conversation, from its metadata. One without a name has its id. */
async function askName(id: string): Promise<string> {
  const found = await callJson(`/v1/conversations/${id}`).catch(() => undefined);
  const { title, name, topic } = found?.metadata ?? {};
  return title || name || topic || id;
}
