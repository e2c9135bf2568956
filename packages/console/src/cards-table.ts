import { html, nothing } from "lit-html";

/**
 * A column of a table of objects. `number`: at the end of the line. `when`: a moment, which is not broken. `long`: a text
 * of many words.
 */
export type Column<Item> = readonly [heading: string, cell: (item: Item) => unknown, kind?: "number" | "when" | "long"];

/**
 * A table of objects, which scrolls within its own width. The first column names them. Its rows become cards on a narrow
 * screen.
 * @param buttons the template of an object's actions; without it there is no column of actions
 */
export function objectsTable<Item>(
  label: string,
  columns: readonly Column<Item>[],
  items: readonly Item[],
  buttons?: (item: Item) => unknown,
) {
  const row = (item: Item) =>
    columns.map(([heading, cell, kind = ""], index) =>
      index === 0
        ? html`<th scope="row" class=${kind} dir="auto">${cell(item)}</th>`
        : html`<td class=${kind} data-label=${heading}>${cell(item)}</td>`,
    );
  return html`<div class="wide card cards" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead>
        <tr>
          ${columns.map(([heading, , kind]) => html`<th scope="col" class=${kind === "number" ? kind : nothing}>${heading}</th>`)}
          ${buttons ? html`<th scope="col"><span class="unseen">Actions</span></th>` : nothing}
        </tr>
      </thead>
      <tbody>
        ${items.map((item) => html`<tr>${row(item)}${buttons ? html`<td class="actions">${buttons(item)}</td>` : nothing}</tr>`)}
      </tbody>
    </table>
  </div>`;
}

/** The figures of a chart, for people who cannot see it. */
export function figuresTable<Item>(label: string, columns: readonly Column<Item>[], items: readonly Item[]) {
  return html`<details class="card"><summary>The figures as a table</summary>${objectsTable(label, columns, items)}</details>`;
}

/** A score from 0 to 1. */
export interface Score {
  name: unknown;
  /** The name of the meter. */
  label: string;
  value: number;
  text: string;
  /** True of a score that is bad, false of one that is good, undefined of one that is neither. */
  isBad?: boolean;
  note?: string;
}

/** @param headings of the columns: names, scores and, where there are any, notes */
export function scoresTable(label: string, headings: readonly string[], scores: readonly Score[]) {
  // A browser shows a value above both bounds as bad, and one below as good.
  const bound = ({ isBad }: Score) => (isBad === undefined ? nothing : isBad ? 0.001 : 1);
  const cells: Column<Score>[1][] = [
    ({ name }) => name,
    (score) =>
      html`<meter min="0" max="1" optimum=${score.isBad === undefined ? nothing : 0} low=${bound(score)} high=${bound(score)} .value=${score.value} aria-label=${score.label}></meter> ${score.text}`,
    ({ note }) => note,
  ];
  const columns = headings.map((heading, index) => [heading, cells[index] ?? (() => ""), "when"] as const);
  return objectsTable(label, columns, scores);
}

/** A name, with the id below it. */
export function namedId(name: unknown, id: string) {
  return html`<bdi class="file-name">${name}</bdi><br /><code class="note">${id}</code>`;
}
