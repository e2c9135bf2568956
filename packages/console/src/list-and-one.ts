import { html, nothing, render } from "lit-html";
import type { View } from "./view.ts";

/** A part of a view that the address chooses. */
export interface Part {
  element: HTMLElement;
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
  part: (path: string[]) => Part,
  navigation: (path: string[]) => unknown = () => nothing,
): View {
  let shown: { address: string; part: Part } | undefined;

  function leave() {
    shown?.part.hide?.();
    shown = undefined;
  }

  return {
    show({ path, query }) {
      const address = path.join("/");
      if (shown?.address !== address) {
        leave();
        shown = { address, part: part(path) };
      }
      render(
        html`<div class="stack"><h1 class="unseen">${title}</h1>${navigation(path)} ${shown.part.element}</div>`,
        view,
      );
      shown.part.show(query);
    },
    hide: () => shown?.part.hide?.(),
    signedIn: leave,
  };
}

/** Named figures, such as counts and times. */
export function figures(rows: readonly (readonly [name: string, value: unknown])[]) {
  return html`<dl class="figures">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
