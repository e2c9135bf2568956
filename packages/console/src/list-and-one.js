import { html, nothing, render } from "lit-html";

/**
 * A view whose address says which part of it is shown.
 *
 * @typedef {object} Part
 * @property {(query: URLSearchParams) => void} show Called each time the part is shown: loads new data.
 * @property {() => void} [hide] Called when another part is shown.
 */

/**
 * @param {HTMLElement} view
 * @param {string} title
 * @param {(element: HTMLElement, path: string[]) => Part} part makes the part of a path
 * @param {(path: string[]) => unknown} [navigation] the template of what leads to the other parts
 * @returns {import("./main.js").View}
 */
export function partsOf(view, title, part, navigation = () => nothing) {
  /** @type {{ address: string, part: Part } | undefined} */
  let shown;
  const body = document.createElement("div");
  body.className = "stack";

  function leave() {
    shown?.part.hide?.();
    shown = undefined;
  }

  return {
    show({ path, query }) {
      render(html`<div class="stack"><h1 class="unseen">${title}</h1>${navigation(path)} ${body}</div>`, view);
      const address = path.join("/");
      if (shown?.address !== address) {
        leave();
        const element = document.createElement("div");
        element.className = "stack";
        body.replaceChildren(element);
        shown = { address, part: part(element, path) };
      }
      shown.part.show(query);
    },
    hide: () => shown?.part.hide?.(),
    signedIn: leave,
  };
}

/**
 * A view of a list, such as `#/batches`, and of each of its entries, such as `#/batches/{id}`.
 * @param {HTMLElement} view
 * @param {string} title
 * @param {(element: HTMLElement) => Part} list
 * @param {(element: HTMLElement, id: string) => Part} one
 */
export function listAndOne(view, title, list, one) {
  return partsOf(view, title, (element, [id]) => (id ? one(element, id) : list(element)));
}

/** Named figures, such as counts and times. @param {readonly (readonly [name: string, value: unknown])[]} rows */
export function figures(rows) {
  return html`<dl class="figures">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
