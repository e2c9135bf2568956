import { html, render } from "./lib/lit-html.js";
/** @param {HTMLElement} section @returns {import("./main.js").View} */
export function lookView(section) {
  return { show: () => render(html`<h1>Look</h1>`, section) };
}
