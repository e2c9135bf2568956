import { html, nothing } from "lit-html";
import type { Decision } from "../api-types.d.ts";
import { type Column, meter, objectsTable } from "./cards-table.ts";
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

/** An option, and its probability. */
type Option = readonly [name: string, probability: number];

const COLUMNS: Column<Option>[] = [
  ["Option", ([name]) => html`<bdi>${name}</bdi>`, "when"],
  ["Probability", ([name, value]) => meter(`Probability of ${name}`, value, `${(100 * value).toFixed(1)} %`), "when"],
];

function answerTemplate(answer: Answer, index: number, asked: string) {
  const title = answer.name ?? `Question ${index + 1}`;
  const options = optionsOf(answer);
  return html`<section class="card stack">
    <h3><bdi>${title}</bdi></h3>
    <p class="note" dir="auto">${beginning(asked, HEADING_LENGTH)}</p>
    <p>${resultTemplate(answer)}</p>
    ${options.length === 0 ? nothing : objectsTable(`Probabilities of ${title}`, COLUMNS, options)}
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
function optionsOf(answer: Answer): Option[] {
  switch (answer.type) {
    case "refusal":
      return [];
    case "score":
      return answer.probabilities.map(({ label, probability }) => [label, probability]);
    case "predicate":
      return sorted([
        ["true", answer.probability],
        ["false", 1 - answer.probability],
      ]);
    case "choice":
      return sorted(answer.probabilities.map(({ value, probability }) => [String(value), probability]));
  }
}

const sorted = (options: Option[]) => options.toSorted(([, one], [, other]) => other - one);
