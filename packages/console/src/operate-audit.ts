import { AUDIT_TYPES } from "@responses-edge/responses-api/platform/audit";
import { html, nothing } from "lit-html";
import type { AuditLog } from "../api-types.d.ts";
import { beginning, moment } from "./format.ts";
import type { ApiObject } from "./json.ts";
import type { Resource } from "./resource.ts";
import { sectionOf } from "./resource.ts";

/** The audit log: `GET /v1/organization/audit_logs`, newest first. */

type Entry = AuditLog["data"][number];

const AUDIT: Resource<Entry> = {
  title: "Audit log",
  source: "/v1/organization/audit_logs",
  address: "#/operate/audit",
  nameOf: ({ id }) => id,
  none: "Nothing was noted.",
  filters: [
    { name: "tenant", label: "Tenant", placeholder: "all" },
    {
      name: "type",
      label: "What was done",
      kind: "choice",
      options: [["", "anything"], ...AUDIT_TYPES.map((type) => [type, type] as const)],
    },
  ],
  queryOf: ({ tenant, type }) => ({ ...(tenant && { project_ids: tenant }), ...(type && { event_types: type }) }),
  columns: [
    { heading: "When", kind: "when", cell: ({ effective_at: at }) => moment(at) },
    {
      heading: "Who",
      cell: ({ actor }) => html`<code>${"session" in actor ? actor.session.user.id : actor.api_key.id}</code>`,
    },
    { heading: "What", cell: ({ type }) => type },
    { heading: "Tenant", cell: ({ project }) => project.id },
    { heading: "To what", cell: subjectTemplate },
  ],
};

/** The object of an action is in the field with the action's name: `{ type: "api_key.created", "api_key.created": { id } }`. */
function subjectTemplate(entry: Entry) {
  const { id, changes_requested: changes } = (entry[entry.type] ?? {}) as ApiObject;
  return html`<code>${beginning(String(id), 64)}</code>
    ${changes ? html`<details><summary>What was asked for</summary><pre>${JSON.stringify(changes, null, 2)}</pre></details>` : nothing}`;
}

export const auditSection = sectionOf(AUDIT);
