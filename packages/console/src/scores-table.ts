import { html } from "lit-html";

/** A table of named scores from 0 to 1, each with a meter. */

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
  const meter = ({ value, label, isBad }: Score) =>
    isBad === undefined
      ? html`<meter min="0" max="1" .value=${value} aria-label=${label}></meter>`
      : // A browser shows a value above both bounds as bad, and one below as good.
        html`<meter min="0" max="1" optimum="0" low=${isBad ? 0.001 : 1} high=${isBad ? 0.001 : 1} .value=${value} aria-label=${label}></meter>`;
  return html`<div class="wide" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead><tr>${headings.map((heading) => html`<th scope="col">${heading}</th>`)}</tr></thead>
      <tbody>
        ${scores.map(
          (score) => html`<tr>
            <th scope="row">${score.name}</th>
            <td class="score">${meter(score)} ${score.text}</td>
            ${headings.length > 2 ? html`<td class="note">${score.note}</td>` : ""}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}
