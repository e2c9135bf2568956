import { html, nothing, render } from "lit-html";
import type { ApiKey as Key } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { actions, cardsTable } from "./cards-table.ts";
import { askForm, confirmed, ask as dialogOf, faultNotice, messageOf, showSecret } from "./dialogs.ts";
import { moment } from "./format.ts";
import type { Limits } from "./limits-form.ts";
import { limitsFields, limitsInWords, limitsOf } from "./limits-form.ts";
import { ifMay, may } from "./rights.ts";
import type { Section } from "./view.ts";

/** Keys, and the limits of keys and tenants: `/v1/admin/keys`, `/v1/admin/tenants`. */

const PAGE_LENGTH = 50;

/** The times for which a rotated key's old text stays valid. */
const GRACES = [
  ["3600", "for an hour"],
  ["0", "no longer"],
  ["86400", "for a day"],
  ["604800", "for a week"],
];

export function keysSection(element: HTMLElement): Section {
  let keys: Key[] | undefined;
  let hasMore = false;
  let tenant = "";
  let fault = "";
  let isBusy = false;

  async function load(after?: string) {
    const query = new URLSearchParams({ limit: String(PAGE_LENGTH) });
    if (tenant) query.set("tenant", tenant);
    if (after !== undefined) query.set("after", after);
    await attempt(async () => {
      const page = await callJson(`/v1/admin/keys?${query}`);
      keys = after === undefined ? page.data : [...(keys ?? []), ...page.data];
      hasMore = page.has_more;
    });
  }

  /** Does something, and says what goes wrong with it. */
  async function attempt(work: () => Promise<void>) {
    if (isBusy) return;
    isBusy = true;
    try {
      fault = "";
      await work();
    } catch (error) {
      fault = messageOf(error);
    }
    isBusy = false;
    draw();
  }

  const pathOf = (id: string, verb?: string) => `/v1/admin/keys/${encodeURIComponent(id)}${verb ? `/${verb}` : ""}`;

  function replace(key: Key) {
    keys = keys?.map((each) => (each.id === key.id ? { ...key, value: undefined } : each));
  }

  function make(event: SubmitEvent) {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const data = new FormData(form);
    const days = String(data.get("days") ?? "");
    void attempt(async () => {
      const key = await callJson("/v1/admin/keys", {
        body: {
          tenant: String(data.get("tenant") ?? "").trim(),
          name: String(data.get("name") ?? "").trim(),
          limits: limitsOf(data),
          ...(days !== "" && { expires_at: Math.floor(Date.now() / 1_000 + Number(days) * 86_400) }),
        },
      });
      form.reset();
      form.closest("details")?.removeAttribute("open");
      if (!hasMore && (!tenant || tenant === key.tenant)) keys = [...(keys ?? []), { ...key, value: undefined }];
      draw();
      await showSecret(`A key of ${key.tenant}`, key.value);
    });
  }

  const toggle = (key: Key) =>
    attempt(async () => {
      const body = { disabled: !key.disabled };
      const question = {
        title: "Disable this key?",
        text: `Requests with ${nameOf(key)} are refused until it is enabled again. Background runs go on.`,
        action: "Disable",
      };
      if (!key.disabled && !(await confirmed(question))) return;
      replace(await callJson(pathOf(key.id), { body }));
      announce(key.disabled ? "The key is enabled." : "The key is disabled.");
    });

  const rotate = (key: Key) =>
    attempt(async () => {
      const grace = await dialogOf(
        "Give this key another text?",
        html`<p>${nameOf(key)} keeps its name, tenant and limits. The text of before is good</p>
          <label class="unseen" for="grace">The text of before is good</label>
          <select id="grace">${GRACES.map(([seconds, label]) => html`<option value=${seconds ?? ""}>${label}</option>`)}</select>`,
        (close) => html`
          <button
            type="button"
            class="danger"
            @click=${() => close((document.querySelector("dialog #grace") as HTMLSelectElement).value)}
          >
            Rotate
          </button>
          <button type="button" autofocus @click=${() => close("")}>Go back</button>
        `,
      );
      if (grace === "") return;
      const rotated = await callJson(pathOf(key.id, "rotate"), { body: { grace_seconds: Number(grace) } });
      replace(rotated);
      await showSecret(`The new text of ${nameOf(key)}`, rotated.value);
    });

  const remove = (key: Key) =>
    attempt(async () => {
      const question = {
        title: "Delete this key?",
        text: `${nameOf(key)} will be refused permanently. Its stored data is not deleted.`,
        action: "Delete",
      };
      if (!(await confirmed(question))) return;
      await callJson(pathOf(key.id), { method: "DELETE" });
      keys = keys?.filter(({ id }) => id !== key.id);
      announce("The key was deleted.");
    });

  const editKey = (key: Key) =>
    attempt(async () => {
      const limits = await editedLimits(`Limits of ${nameOf(key)}`, key.limits, (changed) =>
        callJson(pathOf(key.id), { body: { limits: changed } }),
      );
      if (limits) replace(limits);
    });

  const editTenant = (name: string) =>
    attempt(async () => {
      const path = `/v1/admin/tenants/${encodeURIComponent(name)}`;
      const { limits } = await callJson(path);
      if (!may("changeTenant")) {
        const close = (end: (result: string) => void) =>
          html`<button type="button" @click=${() => end("")}>Go back</button>`;
        await dialogOf(`Limits of tenant ${name}`, html`<p>${limitsInWords(limits)}</p>`, close);
        return;
      }
      await editedLimits(`Limits of tenant ${name}`, limits, (changed) =>
        callJson(path, { body: { limits: changed } }),
      );
    });

  function filter(event: SubmitEvent) {
    event.preventDefault();
    tenant = String(new FormData(event.currentTarget as HTMLFormElement).get("tenant") ?? "").trim();
    void load();
  }

  function draw() {
    render(
      html`
        <div class="section-heading"><h2>Keys and limits</h2></div>
        ${faultNotice(fault)}
        ${ifMay(
          "createApiKey",
          html`<details class="card">
          <summary>Make a key</summary>
          <form class="stack" @submit=${make}>
            <div class="fields">
              <div><label for="new-tenant">Tenant</label><input dir="auto" id="new-tenant" name="tenant" required pattern="[A-Za-z0-9_\\-]{1,64}" title="1 to 64 letters, digits, _ or -" autocomplete="off" spellcheck="false" /></div>
              <div><label for="new-name">Name</label><input dir="auto" id="new-name" name="name" maxlength="256" autocomplete="off" placeholder="what it is for" /></div>
              <div><label for="new-days">Expires in days</label><input id="new-days" name="days" type="number" min="1" max="36500" placeholder="never" /></div>
            </div>
            <fieldset class="stack"><legend>Limits</legend>${limitsFields(null, "new")}</fieldset>
            <div class="buttons"><button class="primary" type="submit">Make the key</button></div>
          </form>
        </details>`,
        )}
        <form class="filters" @submit=${filter}>
          <div><label for="keys-tenant">Tenant</label><input dir="auto" id="keys-tenant" name="tenant" autocomplete="off" spellcheck="false" placeholder="all" /></div>
          <button type="submit">Show</button>
          ${tenant ? html`<button type="button" @click=${() => void editTenant(tenant)}>Limits of tenant ${tenant}</button>` : nothing}
        </form>
        ${keys === undefined ? (fault ? nothing : html`<p class="note">Loading…</p>`) : keys.length === 0 ? html`<p class="note">There are no keys yet. Keys of <code>API_KEYS</code> are not listed.</p>` : tableTemplate(keys)}
        ${hasMore ? html`<p class="buttons"><button type="button" @click=${() => void load(keys?.at(-1)?.id)}>Show more</button></p>` : nothing}
      `,
      element,
    );
  }

  function tableTemplate(shown: readonly Key[]) {
    return cardsTable("Keys", ["Key", "Tenant", "Limits", "Made", "Expires", actions], shown.map(rowTemplate));
  }

  function rowTemplate(key: Key) {
    const hasExpired = key.expires_at !== null && key.expires_at * 1_000 <= Date.now();
    return html`<tr>
      <th scope="row">
        <bdi>${key.name || "unnamed"}</bdi> ${key.disabled ? html`<span class="tag bad">disabled</span>` : nothing}
        ${hasExpired ? html`<span class="tag bad">expired</span>` : nothing}
        <br /><code class="note">${key.redacted_value}</code><br /><code class="note">${key.id}</code>
      </th>
      <td data-label="Tenant"><button type="button" class="plain" title="Limits of this tenant" @click=${() => void editTenant(key.tenant)}>${key.tenant}</button></td>
      <td class="limits" data-label="Limits">${limitsInWords(key.limits)}</td>
      <td class="when" data-label="Made">${moment(key.created_at)}</td>
      <td class="when" data-label="Expires">${key.expires_at === null ? "never" : moment(key.expires_at)}</td>
      <td>
        <div class="buttons">
          ${ifMay("changeApiKey", html`<button type="button" aria-label=${`${key.disabled ? "Enable" : "Disable"} ${nameOf(key)}`} @click=${() => void toggle(key)}>${key.disabled ? "Enable" : "Disable"}</button>`)}
          ${ifMay("changeApiKey", html`<button type="button" aria-label=${`Limits of ${nameOf(key)}`} @click=${() => void editKey(key)}>Limits</button>`)}
          ${ifMay("rotateApiKey", html`<button type="button" aria-label=${`Rotate ${nameOf(key)}`} @click=${() => void rotate(key)}>Rotate</button>`)}
          ${ifMay("deleteApiKey", html`<button type="button" class="danger" aria-label=${`Delete ${nameOf(key)}`} @click=${() => void remove(key)}>Delete</button>`)}
        </div>
      </td>
    </tr>`;
  }

  return { show: () => void load() };
}

function nameOf({ name, id }: Key) {
  return name || id;
}

/** Asks for limits until they are saved, or nobody wants to. */
async function editedLimits<T>(
  title: string,
  limits: Limits | null,
  save: (limits: Limits | null) => Promise<T>,
): Promise<T | undefined> {
  let saved: T | undefined;
  await askForm(title, html`<div id="limits" class="stack">${limitsFields(limits, "edited")}</div>`, async (data) => {
    saved = await save(limitsOf(data));
  });
  if (saved !== undefined) announce("The limits were saved.");
  return saved;
}
