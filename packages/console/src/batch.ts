import { html, nothing, render } from "lit-html";
import type { Batch } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { ApiFault, callJson } from "./api.ts";
import { actions, cardsTable, number } from "./cards-table.ts";
import { confirmed, faultNotice, messageOf } from "./dialogs.ts";
import type { ApiFile } from "./files-list.ts";
import { count, moment, size } from "./format.ts";
import { statusTag } from "./item-view.ts";
import type { Part } from "./list-and-one.ts";
import { figures } from "./list-and-one.ts";
import { Refresher } from "./refresher.ts";
import { saveFile } from "./save.ts";
import { linkButton } from "./share.ts";

/**
 * One batch: its progress, times, usage, faults and files.
 * Each time that it has is in a field of its own: `created_at`, `completed_at` and so on.
 */
export type { Batch };

/** The time between two checks of batches that are in progress. Milliseconds. */
export const EVERY_MS = 3_000;

/** The field with the time of each end. */
const ENDS = ["completed_at", "failed_at", "expired_at", "cancelled_at"];

/** True while the batch may change. */
export function isOpen(batch: Batch) {
  return !ENDS.some((end) => end in batch);
}

export function requestsInWords({ total, completed, failed }: Batch["request_counts"]) {
  if (total === 0) return "–";
  return `${count(completed)} of ${count(total)} answered${failed > 0 ? `, ${count(failed)} failed` : ""}`;
}

/** The files of a batch, by the field with their id. */
const FILES = [
  ["input_file_id", "Input"],
  ["output_file_id", "Answers"],
  ["error_file_id", "Errors"],
] as const;

/** The number of faults that are shown. */
const MAX_FAULTS = 100;

export function batchSection(element: HTMLElement, id: string): Part {
  const path = `/v1/batches/${encodeURIComponent(id)}`;
  let batch: Batch | undefined;
  /** The faults of the last load, and of the last action: a load does not end that. */
  const faults = { load: "", action: "" };
  /** The files that were looked up, by id. Null for one that does not exist any more. */
  const files: Map<string, ApiFile | null> = new Map();
  const refresher = new Refresher(refresh, EVERY_MS);

  async function refresh() {
    await attempt("load", async () => {
      const found: Batch = await callJson(path);
      batch = found;
      const ids = FILES.flatMap(([field]) => found[field] ?? []).filter((file) => !files.has(file));
      await Promise.all(ids.map(lookUp));
    });
    return batch !== undefined && isOpen(batch);
  }

  async function lookUp(file: string) {
    try {
      files.set(file, await callJson(`/v1/files/${encodeURIComponent(file)}`));
    } catch (error) {
      if (error instanceof ApiFault && error.status === 404) files.set(file, null);
    }
  }

  async function attempt(kind: keyof typeof faults, work: () => Promise<void>) {
    try {
      await work();
      faults[kind] = "";
    } catch (error) {
      faults[kind] = messageOf(error);
    }
    draw();
  }

  const cancel = () =>
    attempt("action", async () => {
      const question = {
        title: "Cancel this batch?",
        text: "No further request begins. Its files will have the answers so far.",
        action: "Cancel the batch",
      };
      if (!(await confirmed(question))) return;
      batch = await callJson(`${path}/cancel`, { method: "POST" });
      announce("The batch is being cancelled.");
      void refresher.now();
    });

  function draw() {
    render(
      html`
        <p><a href="#/batches">All batches</a></p>
        ${faultNotice(faults.load)} ${faultNotice(faults.action)}
        ${batch ? batchTemplate(batch) : faults.load ? nothing : html`<p class="note">Loading…</p>`}
      `,
      element,
    );
  }

  function batchTemplate(shown: Batch) {
    const { status, endpoint, model, request_counts: counts, usage, errors, metadata } = shown;
    const { name, ...others } = metadata ?? {};
    const isCancellable = isOpen(shown) && shown.cancelling_at === undefined && status !== "finalizing";
    return html`
      <header class="card stack">
        <div class="buttons"><h2>${name ? html`<bdi>${name}</bdi> ` : nothing}<code>${id}</code></h2>${statusTag(status)}</div>
        ${counts.total > 0 ? html`<progress aria-label="Requests that have ended" max=${counts.total} .value=${counts.completed + counts.failed}></progress>` : nothing}
        ${figures([
          ["Requests", requestsInWords(counts)],
          ["Endpoint", endpoint],
          ["Model of the first request", model ?? "–"],
          ["Input tokens", count(usage.input_tokens)],
          ["cached", count(usage.input_tokens_details.cached_tokens)],
          ["Output tokens", count(usage.output_tokens)],
          ["of them reasoning", count(usage.output_tokens_details.reasoning_tokens)],
        ])}
        ${figures(timesOf(shown))}
        ${Object.keys(others).length > 0 ? html`<p>${Object.entries(others).map(([key, value]) => html`<span class="tag" dir="auto">${key}: ${value}</span> `)}</p>` : nothing}
        <div class="buttons">
          ${linkButton(`#/batches/${id}`)}
          ${isCancellable ? html`<button type="button" class="danger" @click=${cancel}>Cancel</button>` : nothing}
        </div>
      </header>
      ${errors && errors.data.length > 0 ? faultsTemplate(errors.data) : nothing}
      ${cardsTable(
        "Files of the batch",
        ["File", "Name", number("Size"), "Expires", actions],
        FILES.flatMap(([field, label]) => (shown[field] === undefined ? [] : fileTemplate(shown[field], label))),
      )}
    `;
  }

  /** @param file its id */
  function fileTemplate(file: string, label: string) {
    const found = files.get(file);
    const save = () => attempt("action", () => saveFile(file, found?.filename ?? `${file}.jsonl`));
    return html`<tr>
      <th scope="row">${label}</th>
      <td data-label="Name"><bdi class="file-name">${found?.filename ?? "–"}</bdi><br /><code class="note">${file}</code></td>
      <td class="number" data-label="Size">${found ? size(found.bytes) : "–"}</td>
      <td class="when" data-label="Expires">${found?.expires_at == null ? "never" : moment(found.expires_at)}</td>
      <td>${found === null ? html`<span class="tag bad">deleted</span>` : html`<button type="button" aria-label=${`Download ${label}`} @click=${save}>Download</button>`}</td>
    </tr>`;
  }

  return { show: () => refresher.start(), hide: () => refresher.stop() };
}

/** The times of a batch, in order. Its last moment is named where it has not ended. */
function timesOf(batch: Batch) {
  const times = Object.entries(batch)
    .filter(([name, value]) => name.endsWith("_at") && name !== "expires_at" && typeof value === "number")
    .map(([name, value]) => [nameOfTime(name), Number(value)] as const)
    .sort(([, one], [, other]) => one - other);
  if (isOpen(batch)) times.push(["Expires", batch.expires_at]);
  return times.map(([name, value]) => [name, moment(value)] as const);
}

/** @param field such as `in_progress_at` */
function nameOfTime(field: string) {
  const words = field.replace(/_at$/, "").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function faultsTemplate(errors: NonNullable<Batch["errors"]>["data"]) {
  const rows = errors.slice(0, MAX_FAULTS).map(
    ({ line, code, message, param }) => html`<tr>
      <td class="number" data-label="Line">${line ?? "–"}</td>
      <td data-label="Field">${param ?? "–"}</td>
      <td dir="auto">${message} <code class="note">${code}</code></td>
    </tr>`,
  );
  return html`<section class="stack" aria-label="Faults of the input file">
    <h3>Faults of the input file</h3>
    ${cardsTable("Faults", [number("Line"), "Field", "Fault"], rows)}
    ${errors.length > MAX_FAULTS ? html`<p class="note">and ${count(errors.length - MAX_FAULTS)} more</p>` : nothing}
  </section>`;
}
