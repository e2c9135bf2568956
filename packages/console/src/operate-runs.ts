import { html, nothing, render } from "lit-html";
import type { Run } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { actions, cardsTable, number } from "./cards-table.ts";
import { confirmed, faultNotice, messageOf } from "./dialogs.ts";
import { count, duration, moment } from "./format.ts";
import { Refresher } from "./refresher.ts";
import { ifMay } from "./rights.ts";
import type { Section } from "./view.ts";

/** Background runs that have not ended: `GET /v1/admin/runs`. */

const EVERY_MS = 5_000;

/** The number of runs that are shown. A page of the API has 100. */
const MAX_PAGES = 5;

export function runsSection(element: HTMLElement): Section {
  let runs: Run[] | undefined;
  let hasMore = false;
  let fault = "";
  /** Ids of runs that are being cancelled. */
  const ending: Set<string> = new Set();
  const refresher = new Refresher(ask, EVERY_MS);

  async function ask() {
    try {
      [runs, hasMore] = await allRuns();
      fault = "";
    } catch (error) {
      fault = messageOf(error);
    }
    draw();
  }

  async function cancel({ id, tenant }: Run) {
    const question = {
      title: "Cancel this run?",
      text: `${id} of ${tenant} ends with its partial output, and its tenant sees it as cancelled. The audit log names you.`,
      action: "Cancel the run",
    };
    if (!(await confirmed(question))) return;
    ending.add(id);
    draw();
    try {
      await callJson(`/v1/admin/runs/${encodeURIComponent(id)}/cancel`, { method: "POST" });
      announce("The run was cancelled.");
      runs = runs?.filter((run) => run.id !== id);
    } catch (error) {
      fault = messageOf(error);
    }
    ending.delete(id);
    draw();
  }

  function draw() {
    render(
      html`
        <div class="section-heading">
          <h2>Live runs</h2>
          <button type="button" @click=${() => void refresher.now()}>Refresh</button>
        </div>
        ${faultNotice(fault)}
        ${runs ? tableTemplate(runs) : fault ? nothing : html`<p class="note">Loading…</p>`}
      `,
      element,
    );
  }

  function tableTemplate(shown: readonly Run[]) {
    return html`
      <p class="note">
        ${shown.length === 0 ? "Nothing runs." : `${count(shown.length)}${hasMore ? " of more" : ""}, newest first.`}
        Foreground requests are listed of the process that answers this; those of other processes are not listed.
      </p>
      ${
        shown.length === 0
          ? nothing
          : cardsTable(
              "Live runs",
              ["Run", "Tenant", "Model", "Server", "Begun", number("Events"), actions],
              shown.map(rowTemplate),
            )
      }
    `;
  }

  function rowTemplate(run: Run) {
    const { id, tenant, status, model, created_at: createdAt, background, foreground, server, events } = run;
    return html`<tr>
      <th scope="row"><code>${id}</code></th>
      <td data-label="Tenant">${tenant}</td>
      <td data-label="Model">
        ${model ?? "–"} ${foreground ? html`<span class="tag">foreground</span>` : background === false ? html`<span class="tag">Idempotency-Key</span>` : nothing}
        ${status === "unknown" ? html`<span class="tag bad">unknown</span>` : nothing}
      </td>
      <td data-label="Server">${server ?? "–"}</td>
      <td data-label="Begun">${createdAt === null ? "–" : html`${moment(createdAt)}<br /><span class="note">${duration(Math.max(0, Date.now() - createdAt * 1_000))} ago</span>`}</td>
      <td class="number" data-label="Events">${count(events)}</td>
      <td>
        ${ifMay(
          "cancelRun",
          html`<button type="button" class="danger" aria-disabled=${String(ending.has(id))} aria-label=${`Cancel ${id}`} @click=${() => void cancel(run)}>
          ${ending.has(id) ? "Ending…" : "Cancel"}
        </button>`,
        )}
      </td>
    </tr>`;
  }

  return { show: () => refresher.start(), hide: () => refresher.stop() };
}

/** @returns newest first */
async function allRuns(): Promise<[runs: Run[], hasMore: boolean]> {
  const runs: Run[] = [];
  let hasMore = true;
  for (let [page, after] = [0, ""]; hasMore && page < MAX_PAGES; page += 1) {
    const found = await callJson(`/v1/admin/runs?limit=100&after=${encodeURIComponent(after)}`);
    runs.push(...found.data);
    hasMore = found.has_more;
    after = found.last_id ?? "";
  }
  runs.sort((one, other) => (other.created_at ?? 0) - (one.created_at ?? 0) || (one.id < other.id ? -1 : 1));
  return [runs, hasMore];
}
