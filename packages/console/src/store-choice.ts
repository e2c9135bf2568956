import { html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";
import type { VectorStore } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { messageOf } from "./dialogs.ts";

/**
 * The vector stores that a request's `file_search` may search: the tenant's stores. They are loaded when the user opens
 * the list.
 */

const MAX_STORES = 100;

let stores: VectorStore[] | undefined;
let fault = "";

/** Loads the stores again. */
export async function loadStores(redraw: () => void) {
  try {
    stores = (await callJson(`/v1/vector_stores?limit=${MAX_STORES}`)).data;
    fault = "";
  } catch (error) {
    fault = messageOf(error);
  }
  redraw();
}

/** @param chosen ids */
export function storesTemplate(chosen: readonly string[], choose: (ids: string[]) => void) {
  const shown = (stores ?? []).map(({ id, name }) => ({ id, name: name || id }));
  const others = chosen.filter((id) => !shown.some((store) => store.id === id)).map((id) => ({ id, name: id }));
  const all = [...shown, ...others];
  return html`<div class="store-choice">
      ${all.map(
        ({ id, name }) => html`<label class="check">
          <input
            type="checkbox"
            .checked=${live(chosen.includes(id))}
            @change=${(event: Event) => choose((event.target as HTMLInputElement).checked ? [...chosen, id] : chosen.filter((each) => each !== id))}
          />
          <bdi class="file-name">${name}</bdi>
        </label>`,
      )}
    </div>
    ${fault ? html`<p class="fault" dir="auto" role="alert">${fault}</p>` : nothing}
    ${stores !== undefined && all.length === 0 ? html`<p class="note">There are no vector stores. <a href="#/files/stores">Create one</a>.</p>` : nothing}`;
}
