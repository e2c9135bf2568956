import { html, render } from "lit-html";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { actions, cardsTable } from "./cards-table.ts";
import { faultNotice, messageWithField, showSecret } from "./dialogs.ts";
import { moment } from "./format.ts";
import type { Part } from "./list-and-one.ts";
import { listAndOne } from "./list-and-one.ts";
import { PagedList } from "./paged-list.ts";
import type { View } from "./view.ts";
import { deleteEndpoint, webhookSection } from "./webhook.ts";
import type { Endpoint } from "./webhook-form.ts";
import { endpointFields, endpointIn, loadEventTypes, PATH } from "./webhook-form.ts";

/** The tenant's webhook endpoints: `#/webhooks`, `#/webhooks/{id}`. */

export function webhooksView(view: HTMLElement): View {
  return listAndOne(view, "Webhooks", endpointsSection, webhookSection);
}

function endpointsSection(element: HTMLElement): Part {
  const list: PagedList<Endpoint> = new PagedList(PATH, draw);
  let types: readonly string[] = [];
  /** The fault of the form. */
  let fault = "";

  async function load() {
    await list.attempt(async () => {
      [types] = await Promise.all([loadEventTypes(), list.load()]);
    });
  }

  async function make(event: SubmitEvent) {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
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

  const remove = (endpoint: Endpoint) =>
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

  function rowTemplate(endpoint: Endpoint) {
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
