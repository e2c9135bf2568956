import type { TemplateResult } from "lit-html";
import { html } from "lit-html";

/** A table that scrolls within its own width. Its rows become cards on a narrow screen. */
export type Template = TemplateResult;

/** The heading of a column of numbers. */
export const number = (name: string) => html`<th scope="col" class="number">${name}</th>`;

/** The heading of a column of buttons. */
export const actions = html`<th scope="col"><span class="unseen">Actions</span></th>`;

export function cardsTable(label: string, headings: readonly (string | Template)[], rows: readonly Template[]) {
  return html`<div class="wide card cards" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead>
        <tr>${headings.map((each) => (typeof each === "string" ? html`<th scope="col">${each}</th>` : each))}</tr>
      </thead>
      <tbody>${rows}</tbody>
    </table>
  </div>`;
}
