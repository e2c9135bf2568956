import { html } from "lit-html";
import type { WebhookDeliveryList, WebhookEndpoint } from "../api-types.d.ts";
import { deletion } from "./actions.ts";
import { callJson } from "./api.ts";
import { column, noted } from "./cards-table.ts";
import type { Form } from "./fields.ts";
import { count, moment } from "./format.ts";
import { type Resource, ResourceList, resourceView } from "./resource.ts";
import { showSecret } from "./shown-once.ts";
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

/** Takes the secret, which is shown once, from an endpoint. */
function withoutSecret({ signing_secret: secret = "", ...item }: WebhookEndpoint) {
  return { item, next: () => showSecret(`The signing secret of ${item.name}`, secret, "Signing secret") };
}

const tags = (types: readonly string[]) => types.map((type) => html`<span class="tag">${type}</span> `);

const urlTemplate = (url: string) => html`<span class="file-name" dir="auto">${url}</span>`;

const ENDPOINTS: Resource<WebhookEndpoint> = {
  title: "Webhook endpoints",
  source: PATH,
  address: "#/webhooks",
  nameOf: (endpoint) => endpoint.name,
  none: "There are no webhook endpoints.",
  columns: [
    [
      "Endpoint",
      ({ id, name, url }) => noted(html`<a href=${`#/webhooks/${id}`}><bdi>${name}</bdi></a>`, urlTemplate(url)),
    ],
    ["Events", (endpoint) => tags(endpoint.event_types)],
    ["Signing secret", (endpoint) => html`<code>${endpoint.signing_secret_hint}</code>`],
    column("created_at"),
  ],
  listActions: [
    {
      label: "New endpoint",
      icon: "new",
      isMain: true,
      asks: async () => ({ form: await endpointForm(), action: "Create" }),
      does: async (_, body) => withoutSecret(await callJson(PATH, { body })),
    },
  ],
  actions: [
    {
      label: "Edit",
      icon: "edit",
      asks: async (endpoint) => ({ form: await endpointForm(), values: endpoint, action: "Save" }),
      posts: pathOf,
      told: "The endpoint was saved.",
    },
    {
      label: "Send a sample",
      icon: "send",
      asks: async ({ event_types: [type] }) => ({
        form: [{ name: "event_type", label: "Sample of", kind: "choice", options: await eventTypes() }],
        values: { event_type: type },
        action: "Send",
      }),
      async does(item, body) {
        const { status_code: status } = await callJson(`${pathOf(item)}/test`, { body });
        return { item, told: `The endpoint answered the sample of ${body.event_type} with status ${status}.` };
      },
    },
    {
      label: "Rotate the secret",
      icon: "again",
      isDangerous: true,
      asks: () => ({
        title: "Give this endpoint another signing secret?",
        text: "Events are signed with the new secret from now on.",
        form: [{ name: "both", label: "For 24 hours, sign with the old secret as well", kind: "check" }],
        values: { both: true },
        action: "Rotate",
      }),
      async does(endpoint, { both = false }) {
        const body = { keep_old_secret_active_for_24_hours: both };
        return withoutSecret(await callJson(`${pathOf(endpoint)}/rotate_secret`, { body }));
      },
    },
    deletion(
      PATH,
      "endpoint",
      ({ name }) =>
        `${name} gets no further events. Its waiting deliveries and the list of its earlier ones are deleted, too.`,
    ),
  ],
  page: {
    figures: (endpoint) => [
      [
        ["URL", urlTemplate(endpoint.url)],
        ["Signing secret", html`<code>${endpoint.signing_secret_hint}</code>`],
        ["Created", moment(endpoint.created_at)],
        ["Updated", moment(endpoint.updated_at)],
      ],
    ],
    more: (endpoint) => html`<p>${tags(endpoint.event_types)}</p>`,
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
      ["Event", ({ event }) => noted(event.type, html`<code>${event.id}</code>`)],
      ["About", ({ event }) => subjectTemplate(event.data.id)],
      column("status"),
      ["Attempts", (delivery) => count(delivery.attempts), "number"],
      [
        "Last attempt",
        ({ last_attempt_at: last, attempts, status_code: code }) =>
          noted(moment(last), attempts > 0 && (code === null ? "no answer" : `answered with ${code}`)),
        "when",
      ],
      column("next_attempt_at"),
    ],
    isChanging: (delivery) => delivery.status === "pending",
  };
}

function subjectTemplate(id: string) {
  const view = Object.entries(VIEWS).find(([beginning]) => id.startsWith(beginning))?.[1];
  return view ? html`<a href=${`#/${view}/${id}`}><code>${id}</code></a>` : html`<code>${id}</code>`;
}

export function webhooksView(view: HTMLElement): View {
  return resourceView(view, ENDPOINTS);
}
