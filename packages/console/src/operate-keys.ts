import { html, nothing } from "lit-html";
import type { ApiKey } from "../api-types.d.ts";
import { deletion } from "./actions.ts";
import { callJson } from "./api.ts";
import { column, noted } from "./cards-table.ts";
import { LIMITS, limitsInWords, limitsOf, limitValues } from "./limits-form.ts";
import { askFor } from "./question.ts";
import { type Resource, sectionOf } from "./resource.ts";
import { may } from "./rights.ts";
import { show, showSecret } from "./shown-once.ts";

/** Keys, and the limits of keys and tenants: `/v1/admin/keys`, `/v1/admin/tenants`. */

const PATH = "/v1/admin/keys";

const TENANT = {
  name: "tenant",
  label: "Tenant",
  isRequired: true,
  pattern: ["[A-Za-z0-9_\\-]{1,64}", "1 to 64 letters, digits, _ or -"],
} as const;

/** The times for which a rotated key's old text stays valid. */
const GRACES = [
  ["3600", "for an hour"],
  ["0", "no longer"],
  ["86400", "for a day"],
  ["604800", "for a week"],
] as const;

const pathOf = (key: ApiKey) => `${PATH}/${encodeURIComponent(key.id)}`;

const nameOf = (key: ApiKey) => key.name || key.id;

/** False of a key of `API_KEYS`: only the configuration can change it. */
const isMade = (key: ApiKey) => key.source === "admin_api";

const hasExpired = ({ expires_at: expires }: ApiKey) => expires !== null && expires * 1_000 <= Date.now();

/** Asks for the limits of a tenant until they are saved. A role that may not change them sees them. */
async function editTenant(tenant: string) {
  const path = `/v1/admin/tenants/${encodeURIComponent(tenant)}`;
  const { limits } = await callJson(path);
  const title = `Limits of tenant ${tenant}`;
  if (!may("changeTenant")) {
    await show(title, html`<p>${limitsInWords(limits ?? {})}</p>`);
    return;
  }
  await askFor({ title, form: LIMITS, values: limitValues(limits), action: "Save" }, async (given) => {
    await callJson(path, { body: { limits: limitsOf(given) } });
  });
}

function keyTemplate(key: ApiKey) {
  const tag = (is: boolean, text: string, look = "bad") =>
    is ? html`<span class="tag ${look}">${text}</span> ` : nothing;
  const id = html`<code>${key.id}</code>`;
  if (!isMade(key)) return noted(tag(true, "API_KEYS", ""), id);
  const name = html`<bdi>${key.name || "unnamed"}</bdi> ${tag(key.disabled, "disabled")}${tag(hasExpired(key), "expired")}`;
  return noted(name, html`<code>${key.redacted_value}</code>`, id);
}

const KEYS: Resource<ApiKey> = {
  title: "Keys and limits",
  source: PATH,
  address: "#/operate/keys",
  nameOf,
  none: "There are no keys yet.",
  filters: [{ name: "tenant", label: "Tenant", placeholder: "all" }],
  columns: [
    ["Key", keyTemplate],
    ["Tenant", ({ tenant }) => html`<a href=${`#/operate/keys?tenant=${encodeURIComponent(tenant)}`}>${tenant}</a>`],
    ["Limits", (key) => (isMade(key) ? limitsInWords(key.limits ?? {}) : "the tenant's"), "long"],
    ...[column("created_at"), column("expires_at")],
  ],
  listActions: [
    {
      label: "Tenant limits",
      icon: "settings",
      asks: () => ({ title: "Limits of a tenant", form: [TENANT], action: "Show" }),
      does: async (_, { tenant }) => ({ next: () => editTenant(tenant) }),
    },
    {
      label: "New key",
      icon: "new",
      isMain: true,
      needs: "createApiKey",
      asks: () => ({
        form: [
          { name: "name", label: "Name", maxLength: 256, placeholder: "what it is for" },
          TENANT,
          { name: "days", label: "Expires in days", kind: "number", min: 1, max: 36_500, placeholder: "never" },
          { title: "Limits", fields: LIMITS },
        ],
        values: limitValues(null),
        action: "Create the key",
      }),
      async does(_, { name = "", tenant, days, ...limits }) {
        const expires_at = days && Math.floor(Date.now() / 1_000 + days * 86_400);
        const body = { tenant, name, limits: limitsOf(limits), expires_at };
        const { value, ...item } = await callJson(PATH, { body });
        return { item, next: () => showSecret(`A key of ${tenant}`, value) };
      },
    },
  ],
  actions: [
    {
      label: (key) => (key.disabled ? "Enable" : "Disable"),
      icon: "power",
      needs: "changeApiKey",
      isFor: isMade,
      asks: (key) =>
        key.disabled
          ? undefined
          : {
              title: "Disable this key?",
              text: `Requests with ${nameOf(key)} are refused until it is enabled again. Background runs go on.`,
              isDangerous: true,
            },
      posts: pathOf,
      body: (_, key) => ({ disabled: !key.disabled }),
      told: (key) => (key.disabled ? "The key is enabled." : "The key is disabled."),
    },
    {
      label: "Limits",
      icon: "settings",
      needs: "changeApiKey",
      isFor: isMade,
      asks: (key) => ({
        title: `Limits of ${nameOf(key)}`,
        form: LIMITS,
        values: limitValues(key.limits),
        action: "Save",
      }),
      posts: pathOf,
      body: (given) => ({ limits: limitsOf(given) }),
      told: "The limits were saved.",
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
        form: [{ name: "grace", label: "The text of before is good", kind: "choice", options: GRACES }],
      }),
      async does(key, { grace }) {
        const body = { grace_seconds: Number(grace) };
        const { value, ...item } = await callJson(`${pathOf(key)}/rotate`, { body });
        return { item, next: () => showSecret(`The new text of ${nameOf(key)}`, value) };
      },
    },
    {
      ...deletion<ApiKey>(
        PATH,
        "key",
        (key) => `${nameOf(key)} will be refused permanently. Its stored data is not deleted.`,
      ),
      needs: "deleteApiKey",
      isFor: isMade,
    },
  ],
};

export const keysSection = sectionOf(KEYS);
