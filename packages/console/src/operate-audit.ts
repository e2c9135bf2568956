import { AUDIT_TYPES } from "@responses-edge/responses-api/platform/audit";
import { html, nothing } from "lit-html";
import type { AuditLog } from "../api-types.d.ts";
import { beginning, moment } from "./format.ts";
import type { ApiObject } from "./json.ts";
import { sectionOf } from "./resource.ts";

/** The audit log: `GET /v1/organization/audit_logs`, newest first. */

type Entry = AuditLog["data"][number];

const TYPES = [["", "anything"] as const, ...AUDIT_TYPES.map((type) => [type, type] as const)];

/** The object of an action is in the field with the action's name: `{ type: "api_key.created", "api_key.created": { id } }`. */
function subjectTemplate(entry: Entry) {
  const { id, changes_requested: changes } = (entry[entry.type] ?? {}) as ApiObject;
  return html`<code>${beginning(String(id), 64)}</code>
    ${changes ? html`<details><summary>What was asked for</summary><pre>${JSON.stringify(changes, null, 2)}</pre></details>` : nothing}`;
}

export const auditSection = sectionOf<Entry>({
  title: "Audit log",
  source: "/v1/organization/audit_logs",
  address: "#/operate/audit",
  nameOf: (entry) => entry.id,
  none: "Nothing was noted.",
  filters: [
    { name: "tenant", label: "Tenant", placeholder: "all" },
    { name: "type", label: "What was done", kind: "choice", options: TYPES },
  ],
  queryOf: ({ tenant, type }) => ({ ...(tenant && { project_ids: tenant }), ...(type && { event_types: type }) }),
  columns: [
    ["When", (entry) => moment(entry.effective_at), "when"],
    ["Who", ({ actor }) => html`<code>${"session" in actor ? actor.session.user.id : actor.api_key.id}</code>`],
    ["What", (entry) => entry.type],
    ["Tenant", (entry) => entry.project.id],
    ["To what", subjectTemplate],
  ],
});
