import { html, nothing } from "lit-html";
import type { Decision } from "../api-types.d.ts";
import { scoresTable } from "./cards-table.ts";
import { beginning, count } from "./format.ts";

/** The answers of a decision, with the probability of each option. */

type Answer = Decision["answers"][number];

const HEADING_LENGTH = 120;

export function decisionAnswers({ model, answers, usage }: Decision, questions: readonly { instructions: string }[]) {
  const { input_tokens: input, input_tokens_details: details, output_tokens: output } = usage;
  return html`
    <p class="note">By ${model}: ${count(input)} input tokens (${count(details.cached_tokens)} cached), ${count(output)} output tokens.</p>
    ${answers.map((answer, index) => answerTemplate(answer, index, questions[index]?.instructions ?? ""))}
  `;
}

function answerTemplate(answer: Answer, index: number, asked: string) {
  const title = answer.name ?? `Question ${index + 1}`;
  const rows = rowsOf(answer).map(([option, value]) => ({
    name: html`<bdi>${option}</bdi>`,
    label: `Probability of ${option}`,
    value,
    text: `${(100 * value).toFixed(1)} %`,
  }));
  return html`<section class="card stack">
    <h3><bdi>${title}</bdi></h3>
    <p class="note" dir="auto">${beginning(asked, HEADING_LENGTH)}</p>
    <p>${resultTemplate(answer)}</p>
    ${rows.length === 0 ? nothing : scoresTable(`Probabilities of ${title}`, ["Option", "Probability"], rows)}
  </section>`;
}

function resultTemplate(answer: Answer) {
  switch (answer.type) {
    case "predicate":
      return html`<span class="tag">${answer.probability >= 0.5 ? "true" : "false"}</span>`;
    case "choice":
      return html`<span class="tag"><bdi>${String(answer.choice)}</bdi></span>`;
    case "score":
      return html`<span class="tag">${answer.score.toFixed(2)}</span> <span class="note">from 0 to ${answer.probabilities.length - 1}</span>`;
    case "refusal":
      return html`<span class="tag bad">refused</span> <span class="note">The model chose none of the options.</span>`;
  }
}

/** The options with their probabilities: of a scale in its order, else the most probable first. */
function rowsOf(answer: Answer): [option: string, probability: number][] {
  if (answer.type === "refusal") return [];
  if (answer.type === "score") return answer.probabilities.map(({ label, probability }) => [label, probability]);
  const rows: [string, number][] =
    answer.type === "predicate"
      ? [
          ["true", answer.probability],
          ["false", 1 - answer.probability],
        ]
      : answer.probabilities.map(({ value, probability }) => [String(value), probability]);
  return rows.toSorted(([, one], [, other]) => other - one);
}
