import { html } from "lit-html";
import type { WebhookEndpoint } from "../api-types.d.ts";
import { callJson } from "./api.ts";

/** The fields of a webhook endpoint, as a form. */
export type Endpoint = WebhookEndpoint;

export const PATH = "/v1/webhook_endpoints";

/** The events of this server; empty until they were loaded. */
let types: readonly string[] = [];

/** The events that endpoints can get. Throws an ApiFault. */
export async function loadEventTypes() {
  if (types.length === 0) types = (await callJson("/v1/webhook_event_types")).data;
  return types;
}

/**
 * @param all the events to choose from
 * @param prefix starts the ids of the fields: a page may have several of these forms
 */
export function endpointFields(
  all: readonly string[],
  prefix: string,
  given: Pick<Endpoint, "name" | "url" | "event_types"> = { name: "", url: "", event_types: [] },
) {
  return html`
    <div class="fields">
      <div><label for=${`${prefix}-name`}>Name</label><input dir="auto" id=${`${prefix}-name`} name="name" required maxlength="256" autocomplete="off" .value=${given.name} /></div>
      <div><label for=${`${prefix}-url`}>URL</label><input dir="auto" id=${`${prefix}-url`} name="url" type="url" required maxlength="2048" autocomplete="off" spellcheck="false" placeholder="https://example.com/hooks" .value=${given.url} /></div>
    </div>
    <fieldset>
      <legend>Events</legend>
      <div class="checks">
        ${all.map((type) => html`<label class="check"><input type="checkbox" name="event_types" value=${type} .checked=${given.event_types.includes(type)} /> ${type}</label> `)}
      </div>
    </fieldset>
  `;
}

/** The endpoint that a form describes. The server refuses one without events. */
export function endpointIn(form: FormData) {
  return {
    name: String(form.get("name") ?? "").trim(),
    url: String(form.get("url") ?? "").trim(),
    event_types: form.getAll("event_types").map(String),
  };
}
