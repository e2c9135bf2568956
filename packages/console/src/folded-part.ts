import { html, nothing, render } from "lit-html";

/**
 * A part that the user opens. Its content is made each time it is opened.
 * @param content gives the template of what is below the summary
 */
export function foldedPart(summary: unknown, content: () => unknown, look = "card") {
  const toggled = ({ currentTarget }: Event) => {
    const { open, lastElementChild } = currentTarget as HTMLDetailsElement;
    render(open ? content() : nothing, lastElementChild as HTMLElement);
  };
  return html`<details class=${look} @toggle=${toggled}><summary>${summary}</summary><div class="inner"></div></details>`;
}
