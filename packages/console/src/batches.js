import { html, render } from "lit-html";
import { batchSection, EVERY_MS, isOpen, requestsInWords } from "./batch.js";
import { batchForm } from "./batch-form.js";
import { cardsTable, number } from "./cards-table.js";
import { count, moment } from "./format.js";
import { statusTag } from "./item-view.js";
import { listAndOne } from "./list-and-one.js";
import { PagedList } from "./paged-list.js";
import { Refresher } from "./refresher.js";

/** The tenant's batches: `#/batches`, `#/batches/{id}`. */

/** @param {HTMLElement} view @returns {import("./main.js").View} */
export function batchesView(view) {
  return listAndOne(view, "Batches", batchesSection, batchSection);
}

/** @param {HTMLElement} element @returns {import("./list-and-one.js").Part} */
function batchesSection(element) {
  /** @type {PagedList<import("./batch.js").Batch>} */
  const list = new PagedList("/v1/batches", draw);
  const form = batchForm();
  const refresher = new Refresher(async () => {
    await list.refresh();
    return list.items?.some(isOpen) === true;
  }, EVERY_MS);

  function draw() {
    render(
      html`
        <div class="section-heading">
          <h2>Batches</h2>
          <button type="button" @click=${() => void refresher.now()}>Refresh</button>
        </div>
        ${form.element}
        ${list.template("There are no batches.", (batches) =>
          cardsTable(
            "Batches",
            ["Batch", "Status", "Endpoint", "Requests", number("Tokens"), "Created"],
            batches.map(rowTemplate),
          ),
        )}
      `,
      element,
    );
  }

  return {
    show(query) {
      form.show(query.get("input_file_id") ?? undefined);
      draw();
      refresher.start();
    },
    hide: () => refresher.stop(),
  };
}

/** @param {import("./batch.js").Batch} batch */
function rowTemplate({ id, status, endpoint, model, request_counts: counts, usage, created_at: created, metadata }) {
  return html`<tr>
    <th scope="row"><a href=${`#/batches/${id}`}><bdi>${metadata?.name ?? id}</bdi></a>${metadata?.name ? html`<br /><code class="note">${id}</code>` : ""}</th>
    <td data-label="Status">${statusTag(status)}</td>
    <td data-label="Endpoint">${endpoint}${model ? html`<br /><span class="note">${model}</span>` : ""}</td>
    <td data-label="Requests">${requestsInWords(counts)}</td>
    <td class="number" data-label="Tokens">${count(usage.total_tokens)}</td>
    <td class="when" data-label="Created">${moment(created)}</td>
  </tr>`;
}
