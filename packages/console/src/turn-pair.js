import { html, render } from "lit-html";
import { diffTemplate } from "./word-diff.js";

/** The answers of two models to one request, side by side, and the words that differ. */

/** @param {import("./turn-view.js").TurnView} one @param {import("./turn-view.js").TurnView} other */
export function pairElement(one, other) {
  const element = document.createElement("div");
  element.className = "turn-pair";
  const differences = document.createElement("details");
  const inner = document.createElement("div");
  const summary = document.createElement("summary");
  summary.textContent = "Words that differ";
  differences.append(summary, inner);
  differences.addEventListener("toggle", () =>
    render(
      differences.open
        ? html`<div class="inner">
            ${one.isOpen || other.isOpen ? html`<p class="note">As far as they have come.</p>` : ""}
            ${diffTemplate(one.answerText, other.answerText)}
          </div>`
        : "",
      inner,
    ),
  );
  element.append(one.element, other.element, differences);
  return element;
}
