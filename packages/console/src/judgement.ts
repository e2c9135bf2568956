import { html, nothing } from "lit-html";
import type { Moderation } from "../api-types.d.ts";
import type { ApiObject, Parsed } from "./json.ts";

/**
 * A guard's judgement: whether it flags a text, and the score of each category.
 * In the API's form
 */
export type Judgement = Moderation["results"][number];

/** @param label of its scores, which no other judgement on the page has */
export function judgementTemplate(judgement: Judgement, label: string = "Scores") {
  const { flagged, categories, category_scores: scores, category_applied_input_types: types } = judgement;
  const sorted = Object.entries(scores).sort(([, one], [, other]) => other - one);
  const isNoted = ([name, score]: [string, number]) => score > 0 || categories[name] === true;
  const noted = sorted.filter(isNoted);
  const others = sorted.filter((each) => !isNoted(each));
  // A browser shows a value above both bounds as bad, and one below as good.
  const bound = (name: string) => (categories[name] ? 0.001 : 1);
  const row = ([name, score]: [string, number]) => html`<tr>
    <th scope="row">${name} ${categories[name] ? html`<span class="tag bad">flagged</span>` : nothing}</th>
    <td class="score"><meter min="0" max="1" optimum="0" low=${bound(name)} high=${bound(name)} .value=${score} aria-label=${`Score of ${name}`}></meter> ${score.toFixed(3)}</td>
    <td class="note">${(types[name] ?? []).join(", ")}</td>
  </tr>`;
  return html`
    <p>${flagged ? html`<span class="tag bad">flagged</span>` : html`<span class="tag good">not flagged</span>`}</p>
    ${noted.length > 0 ? scoresTable(label, noted.map(row)) : nothing}
    ${
      others.length > 0
        ? html`<details><summary>${noted.length > 0 ? `${others.length} other categories` : `${others.length} categories`} with a score of 0</summary>${scoresTable(`Other ${label.toLowerCase()}`, others.map(row))}</details>`
        : nothing
    }
  `;
}

function scoresTable(label: string, rows: unknown) {
  return html`<div class="wide" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead><tr><th scope="col">Category</th><th scope="col">Score</th><th scope="col">Judged</th></tr></thead>
      <tbody>${rows}</tbody>
    </table>
  </div>`;
}

/** The judgements of a response's input and output; nothing where its create has asked for none. */
export function moderationCard(moderation: Record<"input" | "output", ApiObject> | null | undefined) {
  if (!moderation) return nothing;
  return html`<section class="card stack">
    <h2>Moderation</h2>
    ${(["input", "output"] as const).map((side) => {
      const result = moderation[side];
      return html`<h3>${side === "input" ? "Input" : "Output"} ${result.model ? html`<span class="note">by ${result.model}</span>` : nothing}</h3>
        ${result.type === "error" ? html`<p class="notice" dir="auto">${result.message} <code>${result.code}</code></p>` : judgementTemplate(result as Parsed, `Scores of the ${side}`)}`;
    })}
  </section>`;
}
