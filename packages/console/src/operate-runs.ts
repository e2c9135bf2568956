import { html, nothing } from "lit-html";
import type { Run } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { count, duration, moment } from "./format.ts";
import type { Resource } from "./resource.ts";
import { sectionOf } from "./resource.ts";

/** Runs that have not ended: `GET /v1/admin/runs`. */

/** The number of runs that are shown. A page of the API has 100. */
const MAX_PAGES = 5;

let hasMore = false;

/** @returns newest first */
async function allRuns(): Promise<Run[]> {
  const runs: Run[] = [];
  hasMore = true;
  for (let [page, after] = [0, ""]; hasMore && page < MAX_PAGES; page += 1) {
    const found = await callJson(`/v1/admin/runs?limit=100&after=${encodeURIComponent(after)}`);
    runs.push(...found.data);
    hasMore = found.has_more;
    after = found.last_id ?? "";
  }
  return runs.sort((one, other) => (other.created_at ?? 0) - (one.created_at ?? 0) || (one.id < other.id ? -1 : 1));
}

const RUNS: Resource<Run> = {
  title: "Live runs",
  source: allRuns,
  nameOf: ({ id }) => id,
  none: "Nothing runs.",
  isLive: true,
  note: (runs) => html`<p class="note">
    ${runs.length === 0 ? nothing : `${count(runs.length)}${hasMore ? " of more" : ""}, newest first.`}
    Foreground requests are listed of the process that answers this; those of other processes are not listed.
  </p>`,
  columns: [
    { heading: "Run", cell: ({ id }) => html`<code>${id}</code>` },
    { heading: "Tenant", cell: ({ tenant }) => tenant },
    {
      heading: "Model",
      cell: ({ model, foreground, background, status }) => html`${model ?? "–"}
        ${foreground ? html`<span class="tag">foreground</span>` : background === false ? html`<span class="tag">Idempotency-Key</span>` : nothing}
        ${status === "unknown" ? html`<span class="tag bad">unknown</span>` : nothing}`,
    },
    { heading: "Server", cell: ({ server }) => server ?? "–" },
    {
      heading: "Begun",
      cell: ({ created_at: created }) =>
        created === null
          ? "–"
          : html`${moment(created)}<br /><span class="note">${duration(Math.max(0, Date.now() - created * 1_000))} ago</span>`,
    },
    { heading: "Events", kind: "number", cell: ({ events }) => count(events) },
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
};

export const runsSection = sectionOf(RUNS);
