import { html, render } from "lit-html";
import { announce } from "./announce.js";
import { callJson } from "./api.js";
import { actions, cardsTable, number } from "./cards-table.js";
import { confirmed, faultNotice } from "./dialogs.js";
import { count, moment, size } from "./format.js";
import { statusTag } from "./item-view.js";
import { PagedList } from "./paged-list.js";
import { Refresher } from "./refresher.js";

/**
 * The tenant's vector stores: `/v1/vector_stores`.
 *
 * @typedef {object} Store
 * @property {string} id
 * @property {string} name
 * @property {string} status
 * @property {number} usage_bytes
 * @property {number} created_at
 * @property {number | null} expires_at
 * @property {{ days: number }} [expires_after]
 * @property {{ in_progress: number, completed: number, failed: number, cancelled: number, total: number }} file_counts
 * @property {string | null} embedding_model
 * @property {number | null} embedding_dimensions
 */

/** The time between two checks of stores that are being indexed. Milliseconds. */
export const EVERY_MS = 2_000;

/** @param {Store} store */
export function nameOf({ name, id }) {
  return name || id;
}

/** The progress of indexing a store's files. @param {Store["file_counts"]} counts */
export function countsInWords({ in_progress: open, completed, failed, cancelled, total }) {
  if (total === 0) return "no files";
  const parts = [
    `${count(completed)} of ${count(total)} indexed`,
    open > 0 && `${count(open)} in progress`,
    failed > 0 && `${count(failed)} failed`,
    cancelled > 0 && `${count(cancelled)} cancelled`,
  ];
  return parts.filter(Boolean).join(", ");
}

/**
 * Deletes a store, if it is meant. True where it was.
 * @param {Store} store
 */
export async function deleteStore(store) {
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

/** @param {HTMLElement} element @returns {import("./list-and-one.js").Part} */
export function storesSection(element) {
  /** @type {PagedList<Store>} */
  const list = new PagedList("/v1/vector_stores", draw);
  const refresher = new Refresher(async () => {
    await list.refresh();
    return list.items?.some(({ status }) => status === "in_progress") === true;
  }, EVERY_MS);

  /** @param {Store} store */
  const remove = (store) =>
    list.attempt(async () => {
      if (await deleteStore(store)) list.remove(store.id);
    });

  /** @param {SubmitEvent} event */
  function make(event) {
    event.preventDefault();
    const data = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
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

  /** @param {readonly Store[]} shown */
  function tableTemplate(shown) {
    return cardsTable(
      "Vector stores",
      ["Vector store", "Status", "Files", number("Size"), "Created", "Expires", actions],
      shown.map(rowTemplate),
    );
  }

  /** @param {Store} store */
  function rowTemplate(store) {
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
