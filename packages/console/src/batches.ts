import { html, render } from "lit-html";
import type { Batch } from "./batch.ts";
import { batchSection, EVERY_MS, isOpen, requestsInWords } from "./batch.ts";
import { batchForm } from "./batch-form.ts";
import { cardsTable, number } from "./cards-table.ts";
import { count, moment } from "./format.ts";
import { statusTag } from "./item-view.ts";
import type { Part } from "./list-and-one.ts";
import { listAndOne } from "./list-and-one.ts";
import { PagedList } from "./paged-list.ts";
import { Refresher } from "./refresher.ts";
import type { View } from "./view.ts";

/** The tenant's batches: `#/batches`, `#/batches/{id}`. */

export function batchesView(view: HTMLElement): View {
  return listAndOne(view, "Batches", batchesSection, batchSection);
}

function batchesSection(element: HTMLElement): Part {
  const list: PagedList<Batch> = new PagedList("/v1/batches", draw);
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

function rowTemplate({
  id,
  status,
  endpoint,
  model,
  request_counts: counts,
  usage,
  created_at: created,
  metadata,
}: Batch) {
  return html`<tr>
    <th scope="row"><a href=${`#/batches/${id}`}><bdi>${metadata?.name ?? id}</bdi></a>${metadata?.name ? html`<br /><code class="note">${id}</code>` : ""}</th>
    <td data-label="Status">${statusTag(status)}</td>
    <td data-label="Endpoint">${endpoint}${model ? html`<br /><span class="note">${model}</span>` : ""}</td>
    <td data-label="Requests">${requestsInWords(counts)}</td>
    <td class="number" data-label="Tokens">${count(usage.total_tokens)}</td>
    <td class="when" data-label="Created">${moment(created)}</td>
  </tr>`;
}
