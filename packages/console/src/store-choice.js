import { html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { callJson } from "./api.js";
import { messageOf } from "./dialogs.js";

/**
 * The vector stores that a request's `file_search` may search: the tenant's stores. They are loaded when the user opens
 * the list.
 */

const MAX_STORES = 100;

/** @type {import("./stores-list.js").Store[] | undefined} */
let stores;
let fault = "";

/** Loads the stores again. @param {() => void} redraw */
export async function loadStores(redraw) {
  try {
    stores = (await callJson(`/v1/vector_stores?limit=${MAX_STORES}`)).data;
    fault = "";
  } catch (error) {
    fault = messageOf(error);
  }
  redraw();
}

/** @param {readonly string[]} chosen ids @param {(ids: string[]) => void} choose */
export function storesTemplate(chosen, choose) {
  const shown = (stores ?? []).map(({ id, name }) => ({ id, name: name || id }));
  const others = chosen.filter((id) => !shown.some((store) => store.id === id)).map((id) => ({ id, name: id }));
  const all = [...shown, ...others];
  return html`<div class="store-choice">
      ${all.map(
        ({ id, name }) => html`<label class="check">
          <input
            type="checkbox"
            .checked=${live(chosen.includes(id))}
            @change=${(/** @type {Event} */ event) => choose(/** @type {HTMLInputElement} */ (event.target).checked ? [...chosen, id] : chosen.filter((each) => each !== id))}
          />
          <bdi class="file-name">${name}</bdi>
        </label>`,
      )}
    </div>
    ${fault ? html`<p class="fault" dir="auto" role="alert">${fault}</p>` : nothing}
    ${stores !== undefined && all.length === 0 ? html`<p class="note">There are no vector stores. <a href="#/files/stores">Create one</a>.</p>` : nothing}`;
}
