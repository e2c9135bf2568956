import { html, nothing } from "lit-html";
import type { Run } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { count, duration, moment } from "./format.ts";
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

function modelTemplate({ model, foreground, background, status }: Run) {
  const kind = foreground ? "foreground" : background === false ? "Idempotency-Key" : "";
  return html`${model ?? "–"} ${kind ? html`<span class="tag">${kind}</span>` : nothing}
    ${status === "unknown" ? html`<span class="tag bad">unknown</span>` : nothing}`;
}

function begunTemplate({ created_at: created }: Run) {
  if (created === null) return "–";
  const ago = duration(Math.max(0, Date.now() - created * 1_000));
  return html`${moment(created)}<br /><span class="note">${ago} ago</span>`;
}

export const runsSection = sectionOf<Run>({
  title: "Live runs",
  source: allRuns,
  nameOf: (run) => run.id,
  none: "Nothing runs.",
  isLive: true,
  note: (runs) => html`<p class="note">
    ${runs.length === 0 ? nothing : `${count(runs.length)}${hasMore ? " of more" : ""}, newest first.`}
    Foreground requests are listed of the process that answers this; those of other processes are not listed.
  </p>`,
  columns: [
    ["Run", (run) => html`<code>${run.id}</code>`],
    ["Tenant", (run) => run.tenant],
    ["Model", modelTemplate],
    ["Server", (run) => run.server ?? "–"],
    ["Begun", begunTemplate, "when"],
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
