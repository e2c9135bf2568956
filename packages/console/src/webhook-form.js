import { html } from "lit-html";
import { callJson } from "./api.js";

/**
 * The fields of a webhook endpoint, as a form.
 *
 * @typedef {object} Endpoint
 * @property {string} id
 * @property {string} name
 * @property {string} url
 * @property {string[]} event_types
 * @property {number} created_at
 * @property {number} updated_at
 * @property {string} signing_secret_hint
 * @property {string} [signing_secret] only of an endpoint that was made, or whose secret was rotated, just now
 */

export const PATH = "/v1/webhook_endpoints";

/** The events of this server; empty until they were loaded. @type {readonly string[]} */
let types = [];

/** The events that endpoints can get. Throws an ApiFault. */
export async function loadEventTypes() {
  if (types.length === 0) types = (await callJson("/v1/webhook_event_types")).data;
  return types;
}

/**
 * @param {readonly string[]} all the events to choose from
 * @param {string} prefix starts the ids of the fields: a page may have several of these forms
 * @param {Pick<Endpoint, "name" | "url" | "event_types">} [given]
 */
export function endpointFields(all, prefix, given = { name: "", url: "", event_types: [] }) {
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

/** The endpoint that a form describes. The server refuses one without events. @param {FormData} form */
export function endpointIn(form) {
  return {
    name: String(form.get("name") ?? "").trim(),
    url: String(form.get("url") ?? "").trim(),
    event_types: form.getAll("event_types").map(String),
  };
}
