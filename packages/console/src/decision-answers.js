import { html, nothing } from "lit-html";
import { beginning, count } from "./format.js";

/**
 * The answers of a decision, with the probability of each option.
 *
 * @typedef {object} Answer In the API's form
 * @property {"predicate" | "choice" | "score" | "refusal"} type
 * @property {string | null} name
 * @property {number} [probability] of a predicate
 * @property {string | boolean} [choice]
 * @property {number} [score] from 0, the lowest level
 * @property {{ value: string | boolean | number, label?: string, probability: number }[]} [probabilities]
 *
 * @typedef {object} Decision
 * @property {string} model
 * @property {Answer[]} answers in the order of the questions
 * @property {{ input_tokens: number, input_tokens_details: { cached_tokens: number }, output_tokens: number }} usage
 */

const HEADING_LENGTH = 120;

/** @param {Decision} decision @param {readonly { instructions: string }[]} questions */
export function decisionAnswers({ model, answers, usage }, questions) {
  const { input_tokens: input, input_tokens_details: details, output_tokens: output } = usage;
  return html`
    <p class="note">By ${model}: ${count(input)} input tokens (${count(details.cached_tokens)} cached), ${count(output)} output tokens.</p>
    ${answers.map((answer, index) => answerTemplate(answer, index, questions[index]?.instructions ?? ""))}
  `;
}

/** @param {Answer} answer @param {number} index @param {string} asked */
function answerTemplate(answer, index, asked) {
  const title = answer.name ?? `Question ${index + 1}`;
  const rows = rowsOf(answer);
  const label = `Probabilities of ${title}`;
  return html`<section class="card stack">
    <h3><bdi>${title}</bdi></h3>
    <p class="note" dir="auto">${beginning(asked, HEADING_LENGTH)}</p>
    <p>${resultTemplate(answer)}</p>
    ${
      rows.length === 0
        ? nothing
        : html`<div class="wide" tabindex="0" role="region" aria-label=${label}>
            <table>
              <thead><tr><th scope="col">Option</th><th scope="col">Probability</th></tr></thead>
              <tbody>
                ${rows.map(
                  ([option, probability]) => html`<tr>
                    <th scope="row"><bdi>${option}</bdi></th>
                    <td class="score"><meter min="0" max="1" .value=${probability} aria-label=${`Probability of ${option}`}></meter> ${percent(probability)}</td>
                  </tr>`,
                )}
              </tbody>
            </table>
          </div>`
    }
  </section>`;
}

/** @param {Answer} answer */
function resultTemplate({ type, probability = 0, choice, score = 0, probabilities = [] }) {
  switch (type) {
    case "predicate":
      return html`<span class="tag">${probability >= 0.5 ? "true" : "false"}</span>`;
    case "choice":
      return html`<span class="tag"><bdi>${String(choice)}</bdi></span>`;
    case "score":
      return html`<span class="tag">${score.toFixed(2)}</span> <span class="note">from 0 to ${probabilities.length - 1}</span>`;
    case "refusal":
      return html`<span class="tag bad">refused</span> <span class="note">The model chose none of the options.</span>`;
  }
}

/** The options with their probabilities: of a scale in its order, else the most probable first. @param {Answer} answer @returns {[option: string, probability: number][]} */
function rowsOf({ type, probability = 0, probabilities = [] }) {
  if (type === "refusal") return [];
  /** @type {[option: string, probability: number][]} */
  const rows =
    type === "predicate"
      ? [
          ["true", probability],
          ["false", 1 - probability],
        ]
      : probabilities.map(({ label, value, probability: each }) => [label ?? String(value), each]);
  return type === "score" ? rows : rows.toSorted(([, one], [, other]) => other - one);
}

/** @param {number} probability */
function percent(probability) {
  return `${(100 * probability).toFixed(1)} %`;
}
