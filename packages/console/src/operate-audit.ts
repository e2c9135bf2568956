import { AUDIT_TYPES } from "@responses-edge/responses-api/platform/audit";
import { html, nothing, render } from "lit-html";
import type { AuditLog } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { cardsTable } from "./cards-table.ts";
import { faultNotice, messageOf } from "./dialogs.ts";
import { beginning, moment } from "./format.ts";
import type { ApiObject } from "./json.ts";
import type { Section } from "./view.ts";

/**
 * The audit log: `GET /v1/organization/audit_logs`, newest first.
 * The action's object is in the field with the action's name: `{ type: "api_key.created",
 * "api_key.created": { id } }`
 */
type Row = AuditLog["data"][number];

const PAGE_LENGTH = 50;

export function auditSection(element: HTMLElement): Section {
  let rows: Row[] = [];
  let hasMore = false;
  let isBusy = false;
  let fault = "";
  const filter = { tenant: "", type: "" };
  /** Identifies the latest question, so that answers to earlier ones are ignored. */
  let asked = 0;

  /** @param after the id of the last loaded row; without it all rows are loaded anew */
  async function load(after?: string) {
    asked += 1;
    const question = asked;
    isBusy = true;
    draw();
    const query = new URLSearchParams({ limit: String(PAGE_LENGTH) });
    if (after !== undefined) query.set("after", after);
    if (filter.tenant) query.set("project_ids", filter.tenant);
    if (filter.type) query.set("event_types", filter.type);
    try {
      const page = await callJson(`/v1/organization/audit_logs?${query}`);
      if (question !== asked) return;
      rows = after === undefined ? page.data : [...rows, ...page.data];
      hasMore = page.has_more;
      fault = "";
    } catch (error) {
      if (question !== asked) return;
      fault = messageOf(error);
    }
    isBusy = false;
    draw();
  }

  function submit(event: SubmitEvent) {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    filter.tenant = String(data.get("tenant") ?? "").trim();
    filter.type = String(data.get("type") ?? "");
    void load();
  }

  function draw() {
    render(
      html`
        <div class="section-heading"><h2>Audit log</h2></div>
        <form class="filters" @submit=${submit}>
          <div><label for="audit-tenant">Tenant</label><input dir="auto" id="audit-tenant" name="tenant" autocomplete="off" spellcheck="false" placeholder="all" /></div>
          <div>
            <label for="audit-type">What was done</label>
            <select id="audit-type" name="type">
              <option value="">anything</option>
              ${AUDIT_TYPES.map((type) => html`<option value=${type}>${type}</option>`)}
            </select>
          </div>
          <button type="submit">Show</button>
        </form>
        ${faultNotice(fault)}
        ${rows.length > 0 ? tableTemplate() : html`<p class="note">${isBusy ? "Loading…" : fault ? nothing : "Nothing was noted."}</p>`}
        ${hasMore ? html`<p class="buttons"><button type="button" aria-disabled=${String(isBusy)} @click=${() => !isBusy && void load(rows.at(-1)?.id)}>Show older</button></p>` : nothing}
      `,
      element,
    );
  }

  function tableTemplate() {
    return cardsTable("Audit log", ["When", "Who", "What", "Tenant", "To what"], rows.map(rowTemplate));
  }

  return { show: () => void load() };
}

function rowTemplate(row: Row & ApiObject) {
  const { id, changes_requested: changes } = row[row.type] ?? {};
  return html`<tr>
    <td class="when">${moment(row.effective_at)}</td>
    <td data-label="Who"><code>${"session" in row.actor ? row.actor.session.user.id : row.actor.api_key.id}</code></td>
    <td>${row.type}</td>
    <td data-label="Tenant">${row.project.id}</td>
    <td data-label="To what">
      <code>${beginning(String(id), 64)}</code>
      ${changes ? html`<details><summary>What was asked for</summary><pre>${JSON.stringify(changes, null, 2)}</pre></details>` : nothing}
    </td>
  </tr>`;
}
