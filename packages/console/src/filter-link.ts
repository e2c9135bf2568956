import { html } from "lit-html";

/** A value of a list as a link to those of the shown objects that have it. The address keeps its other filters. */
export function filterLink(name: string, value: string, content: unknown = value) {
  const [address, query] = location.hash.split("?");
  const filters = new URLSearchParams(query);
  filters.set(name, value);
  return html`<a href=${`${address}?${filters}`} dir="auto">${content}</a>`;
}
