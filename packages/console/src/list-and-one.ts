import { html, nothing, render } from "lit-html";
import type { View } from "./view.ts";

/** A view whose address says which part of it is shown. */
export interface Part {
  /** Called each time the part is shown: loads new data. */
  show: (query: URLSearchParams) => void;
  /** Called when another part is shown. */
  hide?: () => void;
}

/**
 * @param part makes the part of a path
 * @param navigation the template of what leads to the other parts
 */
export function partsOf(
  view: HTMLElement,
  title: string,
  part: (element: HTMLElement, path: string[]) => Part,
  navigation: (path: string[]) => unknown = () => nothing,
): View {
  let shown: { address: string; part: Part } | undefined;
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

/** A view of a list, such as `#/batches`, and of each of its entries, such as `#/batches/{id}`. */
export function listAndOne(
  view: HTMLElement,
  title: string,
  list: (element: HTMLElement) => Part,
  one: (element: HTMLElement, id: string) => Part,
) {
  return partsOf(view, title, (element, [id]) => (id ? one(element, id) : list(element)));
}

/** Named figures, such as counts and times. */
export function figures(rows: readonly (readonly [name: string, value: unknown])[]) {
  return html`<dl class="figures">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
