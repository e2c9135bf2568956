import { html, render } from "lit-html";
import { announce } from "./announce.js";
import { callJson } from "./api.js";
import { actions, cardsTable } from "./cards-table.js";
import { faultNotice, messageWithField, showSecret } from "./dialogs.js";
import { moment } from "./format.js";
import { listAndOne } from "./list-and-one.js";
import { PagedList } from "./paged-list.js";
import { deleteEndpoint, webhookSection } from "./webhook.js";
import { endpointFields, endpointIn, loadEventTypes, PATH } from "./webhook-form.js";

/** The tenant's webhook endpoints: `#/webhooks`, `#/webhooks/{id}`. */

/** @param {HTMLElement} view @returns {import("./main.js").View} */
export function webhooksView(view) {
  return listAndOne(view, "Webhooks", endpointsSection, webhookSection);
}

/** @param {HTMLElement} element @returns {import("./list-and-one.js").Part} */
function endpointsSection(element) {
  /** @type {PagedList<import("./webhook-form.js").Endpoint>} */
  const list = new PagedList(PATH, draw);
  /** @type {readonly string[]} */
  let types = [];
  /** The fault of the form. */
  let fault = "";

  async function load() {
    await list.attempt(async () => {
      [types] = await Promise.all([loadEventTypes(), list.load()]);
    });
  }

  /** @param {SubmitEvent} event */
  async function make(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    try {
      const { signing_secret: secret, ...endpoint } = await callJson(PATH, { body: endpointIn(new FormData(form)) });
      fault = "";
      form.reset();
      form.closest("details")?.removeAttribute("open");
      list.put(endpoint);
      announce("The endpoint was made.");
      draw();
      await showSecret(`The signing secret of ${endpoint.name}`, secret, "Signing secret");
    } catch (error) {
      fault = messageWithField(error);
      draw();
    }
  }

  /** @param {import("./webhook-form.js").Endpoint} endpoint */
  const remove = (endpoint) =>
    list.attempt(async () => {
      if (await deleteEndpoint(endpoint)) list.remove(endpoint.id);
    });

  function draw() {
    render(
      html`
        <div class="section-heading"><h2>Webhook endpoints</h2></div>
        <details class="card">
          <summary>Make an endpoint</summary>
          <form class="stack inner" @submit=${make}>
            ${endpointFields(types, "new")} ${faultNotice(fault)}
            <div class="buttons"><button class="primary" type="submit">Create</button></div>
          </form>
        </details>
        ${list.template("There are no webhook endpoints.", (endpoints) =>
          cardsTable(
            "Webhook endpoints",
            ["Endpoint", "Events", "Signing secret", "Created", actions],
            endpoints.map(rowTemplate),
          ),
        )}
      `,
      element,
    );
  }

  /** @param {import("./webhook-form.js").Endpoint} endpoint */
  function rowTemplate(endpoint) {
    const { id, name, url, event_types: events, signing_secret_hint: hint, created_at: created } = endpoint;
    return html`<tr>
      <th scope="row"><a href=${`#/webhooks/${id}`}><bdi>${name}</bdi></a><br /><span class="note file-name" dir="auto">${url}</span></th>
      <td data-label="Events">${events.map((type) => html`<span class="tag">${type}</span> `)}</td>
      <td data-label="Signing secret"><code>${hint}</code></td>
      <td class="when" data-label="Created">${moment(created)}</td>
      <td><button type="button" class="danger" aria-label=${`Delete ${name}`} @click=${() => void remove(endpoint)}>Delete</button></td>
    </tr>`;
  }

  return { show: () => void load(), hide() {} };
}
