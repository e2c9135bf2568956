import { html, nothing, render } from "lit-html";
import { callJson } from "./api.js";
import { ItemView } from "./item-view.js";

/** The words of a turn: its own input, and its output. */

/** Items of the input that are shown; the view of the response has the rest. */
const MAX_INPUT_ITEMS = 100;

/**
 * Asks for a turn's items and puts them into an element. A failure is told there.
 * @param {HTMLElement} element
 * @param {string} id of the response
 * @param {AbortSignal} signal
 */
export async function showTurnItems(element, id, signal) {
  const path = `/v1/responses/${encodeURIComponent(id)}`;
  render(html`<p class="note">Loading…</p>`, element);
  try {
    const [input, response] = await Promise.all([
      callJson(`${path}/input_items?order=asc&limit=${MAX_INPUT_ITEMS}`, { signal }),
      callJson(path, { signal }),
    ]);
    const rest = input.has_more
      ? html`<p class="note">The input has more items: <a href=${`#/responses/${id}`}>look at all of it</a>.</p>`
      : nothing;
    render(html`${elementsOf(input.data)}${rest}${elementsOf(response.output, response)}${errorOf(response)}`, element);
  } catch (error) {
    if (signal.aborted) return;
    const message = error instanceof Error ? error.message : String(error);
    render(html`<p class="notice bad" dir="auto" role="alert">${message}</p>`, element);
  }
}

/** @param {import("./item-view.js").Item[]} items @param {Record<string, any>} [response] that they are of */
function elementsOf(items, response) {
  return items.map((item) => new ItemView(item, { items: () => items, response: () => response }).element);
}

/** @param {{ error: { message: string } | null }} response */
function errorOf({ error }) {
  return error ? html`<p class="notice bad" dir="auto">${error.message}</p>` : nothing;
}
