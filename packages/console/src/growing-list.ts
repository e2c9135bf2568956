import { html, nothing, render } from "lit-html";
import { count } from "./format.ts";

/** A long list: its beginning, and a page more with each click. Each item's template is made once. */
export function growingList<Item>(
  items: readonly Item[],
  page: number,
  template: (item: Item) => unknown,
  look = "stack",
): HTMLElement {
  const element = document.createElement("div");
  const made: unknown[] = [];
  const showMore = () => {
    made.push(...items.slice(made.length, made.length + page).map(template));
    const left = items.length - made.length;
    render(
      html`<ol class=${look}>${made.map((each) => html`<li>${each}</li>`)}</ol>
        ${left > 0 ? html`<button type="button" @click=${showMore}>Show ${count(Math.min(page, left))} more</button>` : nothing}`,
      element,
    );
  };
  showMore();
  return element;
}
