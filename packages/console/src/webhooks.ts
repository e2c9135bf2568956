import { html, nothing } from "lit-html";
import type { WebhookDeliveryList, WebhookEndpoint } from "../api-types.d.ts";
import { deletion } from "./actions.ts";
import { callJson } from "./api.ts";
import type { Form } from "./fields.ts";
import { count, moment } from "./format.ts";
import { statusTag } from "./item-view.ts";
import { showSecret } from "./question.ts";
import type { Resource } from "./resource.ts";
import { ResourceList, resourceView } from "./resource.ts";
import type { View } from "./view.ts";

/** The tenant's webhook endpoints: `#/webhooks`, `#/webhooks/{id}`. */

const PATH = "/v1/webhook_endpoints";

type Delivery = WebhookDeliveryList["data"][number];

/** The view of an object that an event is about, by the beginning of its id. */
const VIEWS: Record<string, string> = { resp_: "responses", batch_: "batches" };

const pathOf = ({ id }: WebhookEndpoint) => `${PATH}/${encodeURIComponent(id)}`;

/** The events that endpoints can get, as choices. */
async function eventTypes(): Promise<[string, string][]> {
  const { data } = await callJson("/v1/webhook_event_types");
  return data.map((type: string) => [type, type]);
}

async function endpointForm(): Promise<Form> {
  return [
    { name: "name", label: "Name", isRequired: true, maxLength: 256 },
    {
      name: "url",
      label: "URL",
      kind: "url",
      isRequired: true,
      maxLength: 2048,
      placeholder: "https://example.com/hooks",
    },
    { name: "event_types", label: "Events", kind: "checks", options: await eventTypes() },
  ];
}

const tags = (types: readonly string[]) => types.map((type) => html`<span class="tag">${type}</span> `);

const ENDPOINTS: Resource<WebhookEndpoint> = {
  title: "Webhook endpoints",
  source: PATH,
  address: "#/webhooks",
  nameOf: ({ name }) => name,
  none: "There are no webhook endpoints.",
  columns: [
    {
      heading: "Endpoint",
      cell: ({ id, name, url }) =>
        html`<a href=${`#/webhooks/${id}`}><bdi>${name}</bdi></a><br /><span class="note file-name" dir="auto">${url}</span>`,
    },
    { heading: "Events", cell: ({ event_types: types }) => tags(types) },
    { heading: "Signing secret", cell: ({ signing_secret_hint: hint }) => html`<code>${hint}</code>` },
    { heading: "Created", kind: "when", cell: ({ created_at: created }) => moment(created) },
  ],
  listActions: [
    {
      label: "New endpoint",
      icon: "new",
      isMain: true,
      asks: async () => ({ title: "New webhook endpoint", form: await endpointForm(), action: "Create" }),
      async does(_, body) {
        const { signing_secret: secret, ...item } = await callJson(PATH, { body });
        const next = () => showSecret(`The signing secret of ${item.name}`, secret, "Signing secret");
        return { item, told: "The endpoint was made.", next };
      },
    },
  ],
  actions: [
    {
      label: "Edit",
      icon: "edit",
      asks: async (endpoint) => ({
        title: "Edit this endpoint",
        form: await endpointForm(),
        values: endpoint,
        action: "Save",
      }),
      does: async (endpoint, body) => ({
        item: await callJson(pathOf(endpoint), { body }),
        told: "The endpoint was saved.",
      }),
    },
    {
      label: "Send a sample",
      icon: "send",
      asks: async ({ event_types: [type] }) => ({
        title: "Send a sample",
        form: [{ name: "event_type", label: "Sample of", kind: "choice", options: await eventTypes() }],
        values: { event_type: type },
        action: "Send",
      }),
      async does(endpoint, body) {
        const { status_code: status } = await callJson(`${pathOf(endpoint)}/test`, { body });
        return {
          item: endpoint,
          told: `The endpoint answered the sample of ${body.event_type} with status ${status}.`,
        };
      },
    },
    {
      label: "Rotate the secret",
      icon: "again",
      isDangerous: true,
      asks: () => ({
        title: "Give this endpoint another signing secret?",
        text: "Events are signed with the new secret from now on.",
        form: [
          {
            name: "keep_old_secret_active_for_24_hours",
            label: "For 24 hours, sign with the old secret as well",
            kind: "check",
          },
        ],
        values: { keep_old_secret_active_for_24_hours: true },
        action: "Rotate",
      }),
      async does(endpoint, { keep_old_secret_active_for_24_hours = false }) {
        const body = { keep_old_secret_active_for_24_hours };
        const { signing_secret: secret, ...item } = await callJson(`${pathOf(endpoint)}/rotate_secret`, { body });
        const next = () => showSecret(`The new signing secret of ${item.name}`, secret, "Signing secret");
        return { item, next };
      },
    },
    deletion(
      PATH,
      ({ name }) => ({
        title: "Delete this endpoint?",
        text: `${name} gets no further events. Its waiting deliveries and the list of its earlier ones are deleted, too.`,
      }),
      "The endpoint was deleted.",
    ),
  ],
  page: {
    figures: ({ url, signing_secret_hint: hint, created_at: created, updated_at: updated }) => [
      [
        ["URL", html`<span class="file-name" dir="auto">${url}</span>`],
        ["Signing secret", html`<code>${hint}</code>`],
        ["Created", moment(created)],
        ["Updated", moment(updated)],
      ],
    ],
    more: ({ event_types: types }) => html`<p>${tags(types)}</p>`,
    parts: (id) => [new ResourceList(deliveriesOf(id), 3)],
  },
};

function deliveriesOf(id: string): Resource<Delivery> {
  return {
    title: "Deliveries",
    source: `${PATH}/${encodeURIComponent(id)}/deliveries`,
    nameOf: (delivery) => delivery.id,
    none: "There are no deliveries. Samples are not listed.",
    columns: [
      { heading: "Event", cell: ({ event }) => html`${event.type}<br /><code class="note">${event.id}</code>` },
      { heading: "About", cell: ({ event }) => subjectTemplate(event.data.id) },
      { heading: "Status", cell: ({ status }) => statusTag(status) },
      { heading: "Attempts", kind: "number", cell: ({ attempts }) => count(attempts) },
      {
        heading: "Last attempt",
        kind: "when",
        cell: ({ last_attempt_at: last, attempts, status_code: code }) =>
          html`${moment(last)}${attempts > 0 ? html`<br /><span class="note">${code === null ? "no answer" : `answered with ${code}`}</span>` : nothing}`,
      },
      { heading: "Next attempt", kind: "when", cell: ({ next_attempt_at: next }) => moment(next) },
    ],
    isChanging: ({ status }) => status === "pending",
  };
}

function subjectTemplate(id: string) {
  const view = Object.entries(VIEWS).find(([beginning]) => id.startsWith(beginning))?.[1];
  return view ? html`<a href=${`#/${view}/${id}`}><code>${id}</code></a>` : html`<code>${id}</code>`;
}

export function webhooksView(view: HTMLElement): View {
  return resourceView(view, ENDPOINTS);
}
