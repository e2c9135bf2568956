import { html, nothing, render } from "lit-html";
import type { ListedResponse as Listed } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { cardsTable, number } from "./cards-table.ts";
import { count, duration, moment, money } from "./format.ts";
import { statusTag } from "./item-view.ts";
import { PagedList } from "./paged-list.ts";
import { recentResponses } from "./recent.ts";
import { Refresher } from "./refresher.ts";

/** The tenant's stored responses, newest first, with a search and filters: `#/responses?query=…&status=…`. */

/** The status of an answer of a deployment without a list of responses. */
const OFF = 426;

/** The time between two checks of responses that run. Milliseconds. */
const EVERY_MS = 3_000;

const STATUSES = ["completed", "incomplete", "failed", "cancelled", "in_progress", "queued"];

/** Known names of conversations. A conversation without a name has its id here. */
const names: Map<string, string> = new Map();

/** The display name of a conversation, from its metadata. */
function nameOf(metadata: Record<string, string> | undefined, id: string) {
  return metadata?.title || metadata?.name || metadata?.topic || id;
}

export class ResponsesList {
  element = document.createElement("div");
  #list: PagedList<Listed> = new PagedList("/v1/responses", () => {
    this.#draw();
    void this.#learnNames();
  });
  /** The query in the address. */
  #query = new URLSearchParams();
  #refresher = new Refresher(() => this.#refresh(), EVERY_MS);

  constructor() {
    this.element.className = "stack";
  }

  show(query: URLSearchParams) {
    if (String(query) !== String(this.#query)) this.#list.filter = filterOf(query);
    this.#query = query;
    this.#draw();
    this.#refresher.start();
  }

  hide() {
    this.#refresher.stop();
  }

  /** True while one of the shown responses runs. */
  async #refresh() {
    await this.#list.refresh();
    return this.#list.items?.some(({ status }) => status === "in_progress" || status === "queued") === true;
  }

  /** Asks for the conversations that are shown and not known yet, one after another. */
  async #learnNames() {
    for (const { conversation } of this.#list.items ?? []) {
      if (!conversation || names.has(conversation.id)) continue;
      names.set(conversation.id, conversation.id);
      const found = await callJson(`/v1/conversations/${conversation.id}`).catch(() => undefined);
      names.set(conversation.id, nameOf(found?.metadata, conversation.id));
      this.#draw();
    }
  }

  #search = (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const given = [...data].flatMap(([name, value]) =>
      String(value).trim() === "" ? [] : [[name, String(value).trim()]],
    );
    location.hash = addressOf(new URLSearchParams(given));
  };

  /** The address of the list with one more filter. */
  #filtered(name: string, value: string) {
    const query = new URLSearchParams(this.#query);
    query.set(name, value);
    return addressOf(query);
  }

  #draw() {
    const none = this.#query.size > 0 ? "No response matches all filters." : "No response is stored yet.";
    render(
      this.#list.faultStatus === OFF
        ? html`<p class="notice">This deployment does not list responses: <code>RESPONSE_INDEX=true</code> turns that on.</p>
            ${recentResponses("responses")}`
        : html`${this.#formTemplate()} ${this.#list.template(none, (listed) => this.#tableTemplate(listed))}`,
      this.element,
    );
  }

  #formTemplate() {
    const value = (name: string) => this.#query.get(name) ?? "";
    return html`<form class="card filters" role="search" aria-label="Responses" @submit=${this.#search}>
      <div><label for="responses-query">Words</label><input dir="auto" id="responses-query" name="query" type="search" maxlength="512" placeholder="said by user or model" .value=${value("query")} /></div>
      <div>
        <label for="responses-status">Status</label>
        <select id="responses-status" name="status">
          <option value="">any</option>
          ${STATUSES.map((status) => html`<option value=${status} ?selected=${status === value("status")}>${status.replaceAll("_", " ")}</option>`)}
        </select>
      </div>
      <div><label for="responses-model">Model</label><input dir="auto" id="responses-model" name="model" spellcheck="false" autocomplete="off" .value=${value("model")} /></div>
      <div><label for="responses-metadata">Metadata</label><input dir="auto" id="responses-metadata" name="metadata" placeholder="key=value" pattern="[^=]+=.*" spellcheck="false" autocomplete="off" .value=${value("metadata")} /></div>
      <div><label for="responses-conversation">Conversation</label><input dir="auto" id="responses-conversation" name="conversation" placeholder="conv_…" spellcheck="false" autocomplete="off" .value=${value("conversation")} /></div>
      <div><label for="responses-from">From</label><input id="responses-from" name="from" type="date" .value=${value("from")} /></div>
      <div><label for="responses-until">Until</label><input id="responses-until" name="until" type="date" .value=${value("until")} /></div>
      <div class="buttons">
        <button class="primary" type="submit">Search</button>
        ${this.#query.size > 0 ? html`<a class="button" href="#/responses">Clear</a>` : nothing}
        <button type="button" @click=${() => void this.#refresher.now()}>Refresh</button>
      </div>
    </form>`;
  }

  #tableTemplate(listed: readonly Listed[]) {
    return cardsTable(
      "Stored responses",
      ["Response", "Status", "Model", "Conversation", "Created", number("Time"), number("Tokens"), number("Cost")],
      listed.map((each) => this.#rowTemplate(each)),
    );
  }

  #rowTemplate({
    id,
    status,
    background,
    model,
    created_at: created,
    duration_ms: took,
    cost_usd: cost,
    ...rest
  }: Listed) {
    const { usage, conversation, metadata, input, output, waited_ms: waited } = rest;
    return html`<tr>
      <th scope="row">
        <a class="said" href=${`#/responses/${id}`} dir="auto">${input?.text || id}</a>
        <p class="said note" dir="auto">${output?.text ?? ""}</p>
        ${Object.entries(metadata).map(([key, value]) => html`<a class="tag" href=${this.#filtered("metadata", `${key}=${value}`)} dir="auto">${key}: ${value}</a> `)}
      </th>
      <td data-label="Status">${statusTag(status)}${background ? html` <span class="tag">background</span>` : nothing}</td>
      <td data-label="Model"><a href=${this.#filtered("model", model)}>${model}</a></td>
      <td data-label="Conversation">
        ${conversation ? html`<a class="said" href=${this.#filtered("conversation", conversation.id)} dir="auto">${names.get(conversation.id) ?? conversation.id}</a>` : "–"}
      </td>
      <td class="when" data-label="Created">${moment(created)}</td>
      <td class="number" data-label="Time">
        ${took === null ? "–" : duration(took)}
        ${waited ? html`<p class="note">waited ${duration(waited)}</p>` : nothing}
      </td>
      <td class="number" data-label="Tokens">${usage ? html`${count(usage.input_tokens)} → ${count(usage.output_tokens)}` : "–"}</td>
      <td class="number" data-label="Cost">${cost === null ? "–" : money(cost)}</td>
    </tr>`;
  }
}

function addressOf(query: URLSearchParams) {
  return query.size > 0 ? `#/responses?${query}` : "#/responses";
}

/** The query of the API for the query of an address. */
function filterOf(query: URLSearchParams): Record<string, string> {
  return Object.fromEntries(
    [...query].map(([name, value]) => {
      if (name === "from") return ["created_at[gte]", String(startOfDay(value))];
      if (name === "until") return ["created_at[lt]", String(startOfDay(value) + 86_400)];
      if (name !== "metadata") return [name, value];
      const [key = "", ...rest] = value.split("=");
      return [`metadata[${key.trim()}]`, rest.join("=").trim()];
    }),
  );
}

/**
 * When a day begins here, in Unix seconds.
 * @param day as `2026-11-25`
 */
function startOfDay(day: string) {
  return Math.floor(new Date(`${day}T00:00`).getTime() / 1_000) || 0;
}
