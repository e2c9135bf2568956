import type { TemplateResult } from "lit-html";
import { html } from "lit-html";

/** A table that scrolls within its own width. Its rows become cards on a narrow screen. */
export type Template = TemplateResult;

/**
 * A column of a table of objects. `number`: at the end of the line. `when`: a moment, which is not broken. `long`: a text
 * of many words.
 */
export type Column<Item> = readonly [heading: string, cell: (item: Item) => unknown, kind?: "number" | "when" | "long"];

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

/**
 * A table of objects. The first column names them.
 * @param buttons the template of an object's actions; without it there is no column of actions
 */
export function objectsTable<Item>(
  label: string,
  columns: readonly Column<Item>[],
  items: readonly Item[],
  buttons?: (item: Item) => unknown,
) {
  const headings = columns.map(([heading, , kind]) => (kind === "number" ? number(heading) : heading));
  const rows = items.map((item) => {
    const cells = columns.map(([heading, cell, kind = ""], index) =>
      index === 0
        ? html`<th scope="row" class=${kind}>${cell(item)}</th>`
        : html`<td class=${kind} data-label=${heading}>${cell(item)}</td>`,
    );
    return html`<tr>${cells}${buttons ? html`<td class="actions">${buttons(item)}</td>` : ""}</tr>`;
  });
  return cardsTable(label, buttons ? [...headings, actions] : headings, rows);
}

/** A name, with the id below it. */
export function namedId(name: unknown, id: string) {
  return html`<bdi class="file-name">${name}</bdi><br /><code class="note">${id}</code>`;
}
