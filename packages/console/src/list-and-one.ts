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

export function partElement() {
  const element = document.createElement("div");
  element.className = "stack";
  return element;
}

/**
 * @param part makes the part of a path
 * @param navigation the template of what leads to the other parts
 * @param isKept whether a part stays as it is while another one is shown
 */
export function partsOf(
  view: HTMLElement,
  title: string,
  part: (path: string[]) => Part,
  navigation: (path: string[]) => unknown = () => nothing,
  isKept = false,
): View {
  const made = new Map<string, Part>();
  let shown: { address: string; part: Part } | undefined;

  function leave() {
    shown?.part.hide?.();
    shown = undefined;
    if (!isKept) made.clear();
  }

  return {
    show({ path, query }) {
      const address = path.join("/");
      if (shown?.address !== address) {
        leave();
        shown = { address, part: made.get(address) ?? part(path) };
        made.set(address, shown.part);
      }
      render(
        html`<div class="stack"><h1 class="unseen">${title}</h1>${navigation(path)} ${shown.part.element}</div>`,
        view,
      );
      shown.part.show(query);
    },
    hide: () => shown?.part.hide?.(),
    signedIn() {
      leave();
      made.clear();
    },
  };
}

/** Links to the parts of a view. @param links the address of each below the view's, and its name */
export function sectionLinks(
  view: string,
  links: readonly (readonly [address: string, label: string])[],
  shown: string,
) {
  return html`<nav class="sections line-below" aria-label="Sections">
    ${links.map(([address, label]) => html`<a href=${`#/${view}${address && `/${address}`}`} aria-current=${address === shown ? "page" : nothing}>${label}</a>`)}
  </nav>`;
}

/** Named figures, such as counts and times. */
export function figures(rows: readonly (readonly [name: string, value: unknown])[]) {
  return html`<dl class="figures">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
