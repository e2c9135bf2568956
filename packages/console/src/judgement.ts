import { html, nothing } from "lit-html";
import type { Moderation } from "../api-types.d.ts";
import { type Score, scoresTable } from "./cards-table.ts";
import type { ApiObject, Parsed } from "./json.ts";

/** A guard's judgement: whether it flags a text, and the score of each category. */

const HEADINGS = ["Category", "Score", "Judged"];

/** @param label of its scores, which no other judgement on the page has */
export function judgementTemplate(judgement: Moderation["results"][number], label: string = "Scores") {
  const { flagged, categories, category_scores: scores, category_applied_input_types: types } = judgement;
  const sorted = Object.entries(scores).sort(([, one], [, other]) => other - one);
  const isNoted = ([name, score]: [string, number]) => score > 0 || categories[name] === true;
  const noted = sorted.filter(isNoted).map(scoreOf);
  const others = sorted.filter((each) => !isNoted(each)).map(scoreOf);

  function scoreOf([name, value]: [string, number]): Score {
    const isBad = categories[name] === true;
    return {
      name: html`${name} ${isBad ? html`<span class="tag bad">flagged</span>` : nothing}`,
      label: `Score of ${name}`,
      value,
      text: value.toFixed(3),
      isBad,
      note: (types[name] ?? []).join(", "),
    };
  }

  return html`
    <p>${flagged ? html`<span class="tag bad">flagged</span>` : html`<span class="tag good">not flagged</span>`}</p>
    ${noted.length > 0 ? scoresTable(label, HEADINGS, noted) : nothing}
    ${
      others.length > 0
        ? html`<details><summary>${others.length}${noted.length > 0 ? " other" : ""} categories with a score of 0</summary>${scoresTable(`Other ${label.toLowerCase()}`, HEADINGS, others)}</details>`
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
