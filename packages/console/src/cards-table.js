import { html } from "lit-html";

/**
 * A table that scrolls within its own width. Its rows become cards on a narrow screen.
 *
 * @typedef {import("lit-html").TemplateResult} Template
 */

/** The heading of a column of numbers. @param {string} name */
export const number = (name) => html`<th scope="col" class="number">${name}</th>`;

/** The heading of a column of buttons. */
export const actions = html`<th scope="col"><span class="unseen">Actions</span></th>`;

/** @param {string} label @param {readonly (string | Template)[]} headings @param {readonly Template[]} rows */
export function cardsTable(label, headings, rows) {
  return html`<div class="wide card cards" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead>
        <tr>${headings.map((each) => (typeof each === "string" ? html`<th scope="col">${each}</th>` : each))}</tr>
      </thead>
      <tbody>${rows}</tbody>
    </table>
  </div>`;
}
