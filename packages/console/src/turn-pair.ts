import { html, render } from "lit-html";
import type { TurnView } from "./turn-view.ts";
import { diffTemplate } from "./word-diff.ts";

/** The answers of two models to one request, side by side, and the words that differ. */

export function pairElement(one: TurnView, other: TurnView) {
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
