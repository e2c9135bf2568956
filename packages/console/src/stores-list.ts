import { html, render } from "lit-html";
import type { VectorStore } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { actions, cardsTable, number } from "./cards-table.ts";
import { confirmed, faultNotice } from "./dialogs.ts";
import { count, moment, size } from "./format.ts";
import { statusTag } from "./item-view.ts";
import type { Part } from "./list-and-one.ts";
import { PagedList } from "./paged-list.ts";
import { Refresher } from "./refresher.ts";

/** The tenant's vector stores: `/v1/vector_stores`. */
export type Store = VectorStore;

/** The time between two checks of stores that are being indexed. Milliseconds. */
export const EVERY_MS = 2_000;

export function nameOf({ name, id }: Store) {
  return name || id;
}

/** The progress of indexing a store's files. */
export function countsInWords({ in_progress: open, completed, failed, cancelled, total }: Store["file_counts"]) {
  if (total === 0) return "no files";
  const parts = [
    `${count(completed)} of ${count(total)} indexed`,
    open > 0 && `${count(open)} in progress`,
    failed > 0 && `${count(failed)} failed`,
    cancelled > 0 && `${count(cancelled)} cancelled`,
  ];
  return parts.filter(Boolean).join(", ");
}

/** Deletes a store, if it is meant. True where it was. */
export async function deleteStore(store: Store) {
  const question = {
    title: "Delete this vector store?",
    text: `${nameOf(store)} is deleted for good. Its files themselves stay.`,
    action: "Delete",
  };
  if (!(await confirmed(question))) return false;
  await callJson(`/v1/vector_stores/${encodeURIComponent(store.id)}`, { method: "DELETE" });
  announce("The vector store was deleted.");
  return true;
}

export function storesSection(element: HTMLElement): Part {
  const list: PagedList<Store> = new PagedList("/v1/vector_stores", draw);
  const refresher = new Refresher(async () => {
    await list.refresh();
    return list.items?.some(({ status }) => status === "in_progress") === true;
  }, EVERY_MS);

  const remove = (store: Store) =>
    list.attempt(async () => {
      if (await deleteStore(store)) list.remove(store.id);
    });

  function make(event: SubmitEvent) {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const days = String(data.get("days") ?? "");
    void list.attempt(async () => {
      const store = await callJson("/v1/vector_stores", {
        body: {
          name: String(data.get("name") ?? "").trim(),
          ...(days !== "" && { expires_after: { anchor: "last_active_at", days: Number(days) } }),
        },
      });
      announce("The vector store was created.");
      location.hash = `#/files/stores/${store.id}`;
    });
  }

  function draw() {
    render(
      html`
        <div class="section-heading"><h2>Vector stores</h2></div>
        ${faultNotice(list.fault)}
        <form class="card filters" @submit=${make}>
          <div><label for="store-name">Name</label><input dir="auto" id="store-name" name="name" maxlength="256" autocomplete="off" /></div>
          <div>
            <label for="store-days">Expires after days without use</label>
            <input id="store-days" name="days" type="number" min="1" max="365" placeholder="never" />
          </div>
          <button class="primary" type="submit">Create</button>
        </form>
        ${list.rows("There are no vector stores.", tableTemplate)}
      `,
      element,
    );
  }

  function tableTemplate(shown: readonly Store[]) {
    return cardsTable(
      "Vector stores",
      ["Vector store", "Status", "Files", number("Size"), "Created", "Expires", actions],
      shown.map(rowTemplate),
    );
  }

  function rowTemplate(store: Store) {
    return html`<tr>
      <th scope="row"><a href=${`#/files/stores/${store.id}`}><bdi>${store.name || "unnamed"}</bdi></a><br /><code class="note">${store.id}</code></th>
      <td data-label="Status">${statusTag(store.status)}</td>
      <td data-label="Files">${countsInWords(store.file_counts)}</td>
      <td class="number" data-label="Size">${size(store.usage_bytes)}</td>
      <td class="when" data-label="Created">${moment(store.created_at)}</td>
      <td class="when" data-label="Expires">${store.expires_at === null ? "never" : moment(store.expires_at)}</td>
      <td><button type="button" class="danger" aria-label=${`Delete ${nameOf(store)}`} @click=${() => void remove(store)}>Delete</button></td>
    </tr>`;
  }

  return { show: () => refresher.start(), hide: () => refresher.stop() };
}
