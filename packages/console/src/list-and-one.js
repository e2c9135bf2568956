import { html, render } from "lit-html";

/**
 * A view of a list, such as `#/batches`, and of each of its entries, such as `#/batches/{id}`.
 *
 * @typedef {object} Part
 * @property {(query: URLSearchParams) => void} show Called each time the part is shown: loads new data.
 * @property {() => void} hide Called when another part is shown.
 */

/**
 * @param {HTMLElement} view
 * @param {string} title
 * @param {(element: HTMLElement) => Part} list
 * @param {(element: HTMLElement, id: string) => Part} one
 * @returns {import("./main.js").View}
 */
export function listAndOne(view, title, list, one) {
  /** @type {{ id: string, part: Part } | undefined} */
  let shown;
  const body = document.createElement("div");
  body.className = "stack";
  render(html`<h1 class="unseen">${title}</h1>${body}`, view);

  function leave() {
    shown?.part.hide();
    shown = undefined;
  }

  return {
    show({ path: [id = ""], query }) {
      if (shown?.id !== id) {
        leave();
        const element = document.createElement("div");
        element.className = "stack";
        body.replaceChildren(element);
        shown = { id, part: id === "" ? list(element) : one(element, id) };
      }
      shown.part.show(query);
    },
    hide: () => shown?.part.hide(),
    signedIn: leave,
  };
}

/** Named figures, such as counts and times. @param {readonly (readonly [name: string, value: unknown])[]} rows */
export function figures(rows) {
  return html`<dl class="figures">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
