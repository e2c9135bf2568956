import { html, nothing, render } from "lit-html";
import type { WebhookDeliveryList } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { cardsTable, number } from "./cards-table.ts";
import { ask, askForm, confirmed, faultNotice, messageWithField, showSecret } from "./dialogs.ts";
import { count, moment } from "./format.ts";
import { statusTag } from "./item-view.ts";
import type { Part } from "./list-and-one.ts";
import { figures } from "./list-and-one.ts";
import { PagedList } from "./paged-list.ts";
import { Refresher } from "./refresher.ts";
import type { Endpoint } from "./webhook-form.ts";
import { endpointFields, endpointIn, loadEventTypes, PATH } from "./webhook-form.ts";

/** One webhook endpoint: a sample, its secret, and its deliveries. */
type Delivery = WebhookDeliveryList["data"][number];

/** The time between two checks of deliveries that wait. Milliseconds. */
const EVERY_MS = 5_000;

/** The view of an object that an event is about, by the beginning of its id. */
const VIEWS: Record<string, string> = { resp_: "responses", batch_: "batches" };

/** Deletes an endpoint, if it is meant. True where it was. */
export async function deleteEndpoint({ id, name }: Endpoint) {
  const question = {
    title: "Delete this endpoint?",
    text: `${name} gets no further events. Its waiting deliveries and the list of its earlier ones are deleted, too.`,
    action: "Delete",
  };
  if (!(await confirmed(question))) return false;
  await callJson(`${PATH}/${encodeURIComponent(id)}`, { method: "DELETE" });
  announce("The endpoint was deleted.");
  return true;
}

export function webhookSection(element: HTMLElement, id: string): Part {
  const path = `${PATH}/${encodeURIComponent(id)}`;
  let endpoint: Endpoint | undefined;
  let types: readonly string[] = [];
  let fault = "";
  /** The result of the last sample. */
  let sample = "";
  const deliveries: PagedList<Delivery> = new PagedList(`${path}/deliveries`, draw);
  const refresher = new Refresher(async () => {
    await deliveries.refresh();
    return deliveries.items?.some(({ status }) => status === "pending") === true;
  }, EVERY_MS);

  const load = () =>
    attempt(async () => {
      [endpoint, types] = await Promise.all([callJson(path), loadEventTypes()]);
    });

  async function attempt(work: () => Promise<void>) {
    try {
      await work();
      fault = "";
    } catch (error) {
      fault = messageWithField(error);
    }
    draw();
  }

  function test(event: SubmitEvent) {
    event.preventDefault();
    const type = new FormData(event.currentTarget as HTMLFormElement).get("event_type");
    sample = "";
    void attempt(async () => {
      const { status_code: status } = await callJson(`${path}/test`, { body: { event_type: type } });
      sample = `The endpoint answered the sample of ${type} with status ${status}.`;
      announce(sample);
    });
  }

  const edit = () =>
    attempt(() =>
      askForm(
        "Edit this endpoint",
        endpointFields(types, "edited", endpoint),
        async (data) => {
          endpoint = await callJson(path, { body: endpointIn(data) });
          announce("The endpoint was saved.");
        },
        messageWithField,
      ),
    );

  const rotate = () =>
    attempt(async () => {
      const answer = await ask(
        "Give this endpoint another signing secret?",
        html`<p>Events are signed with the new secret from now on.</p>
          <label class="check"><input type="checkbox" id="keep-old" checked /> For 24 hours, sign with the old secret as well</label>`,
        (close) => html`
          <button
            type="button"
            class="danger"
            @click=${() => close((document.querySelector("dialog #keep-old") as HTMLInputElement).checked ? "both" : "new")}
          >
            Rotate
          </button>
          <button type="button" autofocus @click=${() => close("")}>Go back</button>
        `,
      );
      if (answer === "") return;
      const { signing_secret: secret, ...rotated } = await callJson(`${path}/rotate_secret`, {
        body: { keep_old_secret_active_for_24_hours: answer === "both" },
      });
      endpoint = rotated;
      draw();
      await showSecret(`The new signing secret of ${rotated.name}`, secret, "Signing secret");
    });

  const remove = () =>
    attempt(async () => {
      if (endpoint && (await deleteEndpoint(endpoint))) location.hash = "#/webhooks";
    });

  function draw() {
    render(
      html`
        <p><a href="#/webhooks">All webhook endpoints</a></p>
        ${faultNotice(fault)}
        ${endpoint ? endpointTemplate(endpoint) : fault ? nothing : html`<p class="note">Loading…</p>`}
      `,
      element,
    );
  }

  function endpointTemplate({
    name,
    url,
    event_types: events,
    created_at: created,
    updated_at: updated,
    ...rest
  }: Endpoint) {
    return html`
      <header class="card stack">
        <h2><bdi>${name}</bdi> <code>${id}</code></h2>
        ${figures([
          ["URL", html`<span class="file-name" dir="auto">${url}</span>`],
          ["Signing secret", html`<code>${rest.signing_secret_hint}</code>`],
          ["Created", moment(created)],
          ["Updated", moment(updated)],
        ])}
        <p>${events.map((type) => html`<span class="tag">${type}</span> `)}</p>
        <div class="buttons">
          <button type="button" @click=${edit}>Edit</button>
          <button type="button" @click=${rotate}>Rotate the secret</button>
          <button type="button" class="danger" @click=${remove}>Delete</button>
        </div>
        <form class="filters" @submit=${test}>
          <div>
            <label for="sample-type">Sample of</label>
            <select id="sample-type" name="event_type">${types.map((type) => html`<option ?selected=${type === events[0]}>${type}</option>`)}</select>
          </div>
          <button type="submit">Send a sample</button>
        </form>
        ${sample ? html`<p>${sample}</p>` : nothing}
      </header>
      <div class="section-heading">
        <h3>Deliveries</h3>
        <button type="button" @click=${() => void refresher.now()}>Refresh</button>
      </div>
      ${deliveries.template("There are no deliveries. Samples are not listed.", (shown) =>
        cardsTable(
          "Deliveries",
          ["Event", "About", "Status", number("Attempts"), "Last attempt", "Next attempt"],
          shown.map(deliveryTemplate),
        ),
      )}
    `;
  }

  return {
    show() {
      void load();
      refresher.start();
    },
    hide: () => refresher.stop(),
  };
}

function deliveryTemplate({ event, status, attempts, status_code: code, ...times }: Delivery) {
  const about = event.data.id;
  const view = Object.entries(VIEWS).find(([beginning]) => about.startsWith(beginning))?.[1];
  return html`<tr>
    <th scope="row">${event.type}<br /><code class="note">${event.id}</code></th>
    <td data-label="About">${view ? html`<a href=${`#/${view}/${about}`}><code>${about}</code></a>` : html`<code>${about}</code>`}</td>
    <td data-label="Status">${statusTag(status)}</td>
    <td class="number" data-label="Attempts">${count(attempts)}</td>
    <td class="when" data-label="Last attempt">
      ${moment(times.last_attempt_at)}${attempts > 0 ? html`<br /><span class="note">${code === null ? "no answer" : `answered with ${code}`}</span>` : nothing}
    </td>
    <td class="when" data-label="Next attempt">${moment(times.next_attempt_at)}</td>
  </tr>`;
}
