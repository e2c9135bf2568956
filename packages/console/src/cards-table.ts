import { html, nothing } from "lit-html";
import { inWords, moment, size } from "./format.ts";
import { statusTag } from "./item-view.ts";

/**
 * A column of a table of objects. `number`: at the end of the line. `when`: a moment, which is not broken. `long`: a text
 * of many words.
 */
export type Column<Item> = readonly [heading: string, cell: (item: Item) => unknown, kind?: "number" | "when" | "long"];

/** The headings of fields that their names do not say. */
const HEADINGS: Record<string, string> = { bytes: "Size", usage_bytes: "Size" };

/** The column of a field that every list shows alike: a moment, a size, a status or a text. */
export function column<Name extends string>(field: Name): Column<{ readonly [name in Name]?: unknown }> {
  const heading = HEADINGS[field] ?? inWords(field.replace(/_at$/, ""));
  if (field.endsWith("_at")) {
    const none = field === "expires_at" ? "never" : "–";
    return [heading, (item) => moment(item[field] as number | null | undefined, none), "when"];
  }
  if (field.endsWith("bytes")) return [heading, (item) => size(item[field] as number), "number"];
  if (field === "status") return [heading, (item) => statusTag(item[field] as string)];
  return [heading, (item) => item[field] ?? "–"];
}

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

/**
 * A score from 0 to 1, as a meter and as a text.
 * @param isBad true of a score that is bad, false of one that is good, undefined of one that is neither
 */
export function meter(label: string, value: number, text: string, isBad?: boolean) {
  // A browser shows a value above both bounds as bad, and one below as good.
  const bound = isBad === undefined ? nothing : isBad ? 0.001 : 1;
  return html`<meter min="0" max="1" optimum=${isBad === undefined ? nothing : 0} low=${bound} high=${bound} .value=${value} aria-label=${label}></meter> ${text}`;
}

/** A value with notes below it, as far as there are any. */
export function noted(value: unknown, ...notes: unknown[]) {
  return html`${value}${notes.map((note) => (note ? html`<p class="note">${note}</p>` : nothing))}`;
}

/** A name, with the id below it. */
export function namedId(name: unknown, id: string) {
  return html`<bdi class="file-name">${name}</bdi><br /><code class="note">${id}</code>`;
}
