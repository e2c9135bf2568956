import { html, render } from "./lib/lit-html.js";
/** @param {HTMLElement} section @returns {import("./main.js").View} */
export function tryView(section) {
  return { show: () => render(html`<h1>Try</h1>`, section) };
}
