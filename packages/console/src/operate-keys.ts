import { html, nothing } from "lit-html";
import type { ApiKey } from "../api-types.d.ts";
import type { Action } from "./actions.ts";
import { deletion } from "./actions.ts";
import { callJson } from "./api.ts";
import { ask } from "./dialogs.ts";
import { moment } from "./format.ts";
import { LIMITS, limitsInWords, limitsOf, limitValues } from "./limits-form.ts";
import type { Question } from "./question.ts";
import { askFor, showSecret } from "./question.ts";
import type { Resource } from "./resource.ts";
import { sectionOf } from "./resource.ts";
import { may } from "./rights.ts";

/** Keys, and the limits of keys and tenants: `/v1/admin/keys`, `/v1/admin/tenants`. */

const PATH = "/v1/admin/keys";

const TENANT = ["[A-Za-z0-9_\\-]{1,64}", "1 to 64 letters, digits, _ or -"] as const;

/** The times for which a rotated key's old text stays valid. */
const GRACES = [
  ["3600", "for an hour"],
  ["0", "no longer"],
  ["86400", "for a day"],
  ["604800", "for a week"],
] as const;

const pathOf = ({ id }: ApiKey) => `${PATH}/${encodeURIComponent(id)}`;

function nameOf({ name, id }: ApiKey) {
  return name || id;
}

const creation: Action<undefined, ApiKey> = {
  label: "New key",
  icon: "new",
  isMain: true,
  needs: "createApiKey",
  asks: () => ({
    title: "New key",
    form: [
      { name: "name", label: "Name", maxLength: 256, placeholder: "what it is for" },
      { name: "tenant", label: "Tenant", isRequired: true, pattern: TENANT },
      { name: "days", label: "Expires in days", kind: "number", min: 1, max: 36_500, placeholder: "never" },
      { title: "Limits", fields: LIMITS },
    ],
    values: limitValues(null),
    action: "Create the key",
  }),
  async does(_, { name = "", tenant, days, ...limits }) {
    const expiry = days === undefined ? {} : { expires_at: Math.floor(Date.now() / 1_000 + days * 86_400) };
    const { value, ...item } = await callJson(PATH, { body: { tenant, name, limits: limitsOf(limits), ...expiry } });
    return { item, next: () => showSecret(`A key of ${tenant}`, value) };
  },
};

/** Asks for the limits of a tenant until they are saved. A role that may not change them sees them. */
async function editTenant(tenant: string) {
  const path = `/v1/admin/tenants/${encodeURIComponent(tenant)}`;
  const { limits } = await callJson(path);
  const title = `Limits of tenant ${tenant}`;
  if (!may("changeTenant")) {
    const close = (end: (result: string) => void) =>
      html`<button type="button" @click=${() => end("")}>Go back</button>`;
    await ask(title, html`<p>${limitsInWords(limits)}</p>`, close);
    return;
  }
  await askFor(limitsQuestion(title, limits), async (given) => {
    await callJson(path, { body: { limits: limitsOf(given) } });
  });
}

function limitsQuestion(title: string, limits: ApiKey["limits"]): Question {
  return { title, form: LIMITS, values: limitValues(limits), action: "Save" };
}

const KEYS: Resource<ApiKey> = {
  title: "Keys and limits",
  source: PATH,
  address: "#/operate/keys",
  nameOf,
  none: "There are no keys yet.",
  filters: [{ name: "tenant", label: "Tenant", placeholder: "all" }],
  columns: [
    {
      heading: "Key",
      cell: (
        key,
      ) => html`<bdi>${key.name || "unnamed"}</bdi> ${key.disabled ? html`<span class="tag bad">disabled</span>` : nothing}
        ${hasExpired(key) ? html`<span class="tag bad">expired</span>` : nothing} ${isMade(key) ? nothing : html`<span class="tag">API_KEYS</span>`}
        <br /><code class="note">${key.redacted_value}</code><br /><code class="note">${key.id}</code>`,
    },
    {
      heading: "Tenant",
      cell: ({ tenant }) => html`<a href=${`#/operate/keys?tenant=${encodeURIComponent(tenant)}`}>${tenant}</a>`,
    },
    { heading: "Limits", kind: "limits", cell: ({ limits }) => limitsInWords(limits) },
    { heading: "Made", kind: "when", cell: ({ created_at: created }) => moment(created) },
    {
      heading: "Expires",
      kind: "when",
      cell: ({ expires_at: expires }) => (expires === null ? "never" : moment(expires)),
    },
  ],
  listActions: [
    {
      label: "Tenant limits",
      icon: "settings",
      asks: () => ({
        title: "Limits of a tenant",
        form: [{ name: "tenant", label: "Tenant", isRequired: true, pattern: TENANT }],
        action: "Show",
      }),
      does: async (_, { tenant }) => ({ next: () => editTenant(tenant) }),
    },
    creation,
  ],
  actions: [
    {
      label: ({ disabled }) => (disabled ? "Enable" : "Disable"),
      icon: "power",
      needs: "changeApiKey",
      isFor: isMade,
      asks: (key) =>
        key.disabled
          ? undefined
          : {
              title: "Disable this key?",
              text: `Requests with ${nameOf(key)} are refused until it is enabled again. Background runs go on.`,
              action: "Disable",
              isDangerous: true,
            },
      does: async (key) => ({
        item: await callJson(pathOf(key), { body: { disabled: !key.disabled } }),
        told: key.disabled ? "The key is enabled." : "The key is disabled.",
      }),
    },
    {
      label: "Limits",
      icon: "settings",
      needs: "changeApiKey",
      isFor: isMade,
      asks: (key) => limitsQuestion(`Limits of ${nameOf(key)}`, key.limits),
      does: async (key, given) => ({
        item: await callJson(pathOf(key), { body: { limits: limitsOf(given) } }),
        told: "The limits were saved.",
      }),
    },
    {
      label: "Rotate",
      icon: "again",
      isDangerous: true,
      needs: "rotateApiKey",
      isFor: isMade,
      asks: (key) => ({
        title: "Give this key another text?",
        text: `${nameOf(key)} keeps its name, tenant and limits.`,
        form: [{ name: "grace_seconds", label: "The text of before is good", kind: "choice", options: GRACES }],
        action: "Rotate",
      }),
      async does(key, given) {
        const body = { grace_seconds: Number(given.grace_seconds) };
        const { value, ...item } = await callJson(`${pathOf(key)}/rotate`, { body });
        return { item, next: () => showSecret(`The new text of ${nameOf(key)}`, value) };
      },
    },
    {
      ...deletion<ApiKey>(
        PATH,
        (key) => ({
          title: "Delete this key?",
          text: `${nameOf(key)} will be refused permanently. Its stored data is not deleted.`,
        }),
        "The key was deleted.",
        "deleteApiKey",
      ),
      isFor: isMade,
    },
  ],
};

/** False of a key of `API_KEYS`: only the configuration can change it. */
function isMade(key: ApiKey) {
  return !("source" in key) || key.source !== "configuration";
}

function hasExpired({ expires_at: expires }: ApiKey) {
  return expires !== null && expires * 1_000 <= Date.now();
}

export const keysSection = sectionOf(KEYS);
