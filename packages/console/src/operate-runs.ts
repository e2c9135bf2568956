import { html, nothing } from "lit-html";
import type { Run } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { column, noted } from "./cards-table.ts";
import { count, duration, moment } from "./format.ts";
import type { Page } from "./paged-list.ts";
import { sectionOf } from "./resource.ts";

/** Runs that have not ended: `GET /v1/admin/runs`. */

/** The number of runs that are shown. A page of the API has 100. */
const MAX_PAGES = 5;

/** @returns newest first */
async function allRuns(): Promise<Page<Run>> {
  const data: Run[] = [];
  let has_more = true;
  for (let [page, after] = [0, ""]; has_more && page < MAX_PAGES; page += 1) {
    const found = await callJson(`/v1/admin/runs?limit=100&after=${encodeURIComponent(after)}`);
    data.push(...found.data);
    has_more = found.has_more;
    after = found.last_id ?? "";
  }
  data.sort((one, other) => (other.created_at ?? 0) - (one.created_at ?? 0) || (one.id < other.id ? -1 : 1));
  return { data, has_more };
}

function modelTemplate({ model, foreground, background, status }: Run) {
  const kind = foreground ? "foreground" : background === false ? "Idempotency-Key" : "";
  return html`${model ?? "–"} ${kind ? html`<span class="tag">${kind}</span>` : nothing}
    ${status === "unknown" ? html`<span class="tag bad">unknown</span>` : nothing}`;
}

export const runsSection = sectionOf<Run, Page<Run>>({
  title: "Live runs",
  source: allRuns,
  nameOf: (run) => run.id,
  none: "Nothing runs.",
  isLive: true,
  note: ({ data, has_more: hasMore }) => html`<p class="note">
    ${data.length === 0 ? nothing : `${count(data.length)}${hasMore ? " of more" : ""}, newest first.`}
    Foreground requests are listed of the process that answers this; those of other processes are not listed.
  </p>`,
  columns: [
    ["Run", (run) => html`<code>${run.id}</code>`],
    column("tenant"),
    ["Model", modelTemplate],
    column("server"),
    [
      "Begun",
      ({ created_at: begun }) =>
        noted(moment(begun), begun !== null && `${duration(Math.max(0, Date.now() - begun * 1_000))} ago`),
      "when",
    ],
    ["Events", (run) => count(run.events), "number"],
  ],
  actions: [
    {
      label: "Cancel",
      icon: "stop",
      isDangerous: true,
      needs: "cancelRun",
      asks: ({ id, tenant }) => ({
        title: "Cancel this run?",
        text: `${id} of ${tenant} ends with its partial output, and its tenant sees it as cancelled. The audit log names you.`,
        action: "Cancel the run",
      }),
      async does({ id }) {
        await callJson(`/v1/admin/runs/${encodeURIComponent(id)}/cancel`, { method: "POST" });
        return { isGone: true, told: "The run was cancelled." };
      },
    },
  ],
});
