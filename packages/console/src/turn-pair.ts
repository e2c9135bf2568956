import { html, nothing, render } from "lit-html";
import type { TurnView } from "./turn-view.ts";
import { diffTemplate } from "./word-diff.ts";

/** The answers of two models to one question, side by side, and the words that differ. One of them goes on. */

/** @param choose Called with the turn that the chat shall go on from. */
export function pairElement(one: TurnView, other: TurnView, choose: (view: TurnView) => void) {
  const element = document.createElement("div");
  element.className = "turn-pair";
  const choice = document.createElement("fieldset");
  const differences = document.createElement("details");
  let chosen = one;
  const name = `pair-${one.turn.key}`;
  const drawChoice = () =>
    render(
      html`<legend>The chat goes on with</legend>
        <div class="buttons">
          ${[one, other].map(
            (view) => html`<label class="check">
              <input type="radio" name=${name} .checked=${view === chosen} @change=${() => take(view)} />
              <bdi>${view.turn.model}</bdi>
            </label>`,
          )}
        </div>`,
      choice,
    );
  const take = (view: TurnView) => {
    chosen = view;
    drawChoice();
    choose(view);
  };
  const drawDifferences = () =>
    render(
      html`<summary>Words that differ</summary>
        ${
          differences.open
            ? html`<div class="inner">
                ${one.isOpen || other.isOpen ? html`<p class="note">As far as they have come.</p>` : nothing}
                ${diffTemplate(one.answerText, other.answerText)}
              </div>`
            : nothing
        }`,
      differences,
    );
  differences.addEventListener("toggle", drawDifferences);
  drawChoice();
  drawDifferences();
  element.append(one.element, other.element, choice, differences);
  return element;
}
