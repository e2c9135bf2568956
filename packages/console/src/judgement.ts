import { html, nothing } from "lit-html";
import type { Moderation } from "../api-types.d.ts";
import { type Column, meter, objectsTable } from "./cards-table.ts";
import type { ApiObject, Parsed } from "./json.ts";

/** A guard's judgement: whether it flags a text, and the score of each category. */

/** @param label of its scores, which no other judgement on the page has */
export function judgementTemplate(judgement: Moderation["results"][number], label: string = "Scores") {
  const { flagged, categories, category_scores: scores, category_applied_input_types: types } = judgement;
  const sorted = Object.entries(scores).sort(([, one], [, other]) => other - one);
  const isFlagged = ([name]: [string, number]) => categories[name] === true;
  const isNoted = (score: [string, number]) => score[1] > 0 || isFlagged(score);
  const others = sorted.filter((each) => !isNoted(each));
  const noted = sorted.filter(isNoted);
  const columns: Column<[string, number]>[] = [
    [
      "Category",
      (score) => html`${score[0]} ${isFlagged(score) ? html`<span class="tag bad">flagged</span>` : nothing}`,
      "when",
    ],
    ["Score", (score) => meter(`Score of ${score[0]}`, score[1], score[1].toFixed(3), isFlagged(score)), "when"],
    ["Judged", ([name]) => (types[name] ?? []).join(", "), "when"],
  ];
  return html`
    <p>${flagged ? html`<span class="tag bad">flagged</span>` : html`<span class="tag good">not flagged</span>`}</p>
    ${noted.length > 0 ? objectsTable(label, columns, noted) : nothing}
    ${
      others.length > 0
        ? html`<details><summary>${others.length}${noted.length > 0 ? " other" : ""} categories with a score of 0</summary>${objectsTable(`Other ${label.toLowerCase()}`, columns, others)}</details>`
        : nothing
    }
  `;
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
