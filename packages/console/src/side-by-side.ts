import { html, nothing, render } from "lit-html";
import { until } from "lit-html/directives/until.js";
import type { Turn } from "./chat-model.ts";
import { foldedPart } from "./folded-part.ts";
import { beginning, moment } from "./format.ts";
import { growingList } from "./growing-list.ts";
import { linkButton } from "./share.ts";
import { questionOf } from "./turn-parts.ts";
import type { TurnView } from "./turn-view.ts";
import { diffTemplate } from "./word-diff.ts";

/** Turns side by side, and the words that differ: the answers of two models to one question, and two branches of a chat. */

/** Turns of each branch that are shown at first and added with each click on "more". */
const TURNS = 10;

/**
 * The answers to one question. One of them goes on.
 * @param chosen the turn that the chat goes on from
 * @param choose Called with another one.
 */
export function pairTemplate(pair: readonly [TurnView, TurnView], chosen: Turn, choose: (turn: Turn) => void) {
  const [one, other] = pair;
  const differences = () => html`
    ${one.isOpen || other.isOpen ? html`<p class="note">As far as they have come.</p>` : nothing}
    ${diffTemplate(one.answerText, other.answerText)}`;
  return html`<div class="turn-pair">
    ${pair.map(({ element }) => element)}
    <fieldset>
      <legend>The chat goes on with</legend>
      <div class="buttons">
        ${pair.map(
          ({ turn }) => html`<label class="check">
            <input type="radio" name="pair-${one.turn.key}" .checked=${turn === chosen} @change=${() => choose(turn)} />
            <bdi>${turn.model}</bdi>
          </label>`,
        )}
      </div>
    </fieldset>
    ${foldedPart("Words that differ", differences, "")}
  </div>`;
}

/**
 * Two branches of a chat, from the point where they part.
 * @param paths the turns from the root to the end of each branch
 * @param viewOf gives a turn on the page, which reads it where it is not there yet
 * @param close Called when the user has seen enough.
 */
export function branchesElement(
  paths: readonly [readonly Turn[], readonly Turn[]],
  viewOf: (turn: Turn) => TurnView,
  close: () => void,
): HTMLElement {
  const [one, other] = paths;
  const parting = one.findIndex((turn, index) => turn !== other[index]);
  const shared = parting < 0 ? one.length : parting;
  const common = one[shared - 1];
  const branches = paths.map((turns) => turns.slice(shared));
  const ends = paths.map((turns) => turns.at(-1)?.id);
  const element = document.createElement("div");
  element.className = "stack";
  render(
    html`<div class="buttons">
        <button type="button" @click=${close}>Back to the chat</button>
        ${linkButton(`#/chat/${ends[1]}/compare/${ends.join("/")}`)}
      </div>
      <p>${
        common
          ? html`Both continue <a href=${`#/responses/${common.id}`}><bdi>${nameOf(common)}</bdi></a>, and part there.`
          : "They have nothing in common but the tree: each begins anew."
      }</p>
      ${foldedPart("Words that differ", differences)}
      <div class="tree-branches turn-pair">
        ${branches.map((turns, index) => branchTemplate(turns, index === 0 ? "One branch" : "The other branch"))}
      </div>`,
    element,
  );
  return element;

  function differences() {
    const length = Math.max(...branches.map((turns) => turns.length));
    return growingList(
      Array.from({ length }, (_, index) => index),
      TURNS,
      (index) => until(differenceOf(index)),
    );
  }

  async function differenceOf(index: number) {
    const views = branches.map((turns) => turns[index]).map((turn) => turn && viewOf(turn));
    await Promise.all(views.map((view) => view?.restored));
    const [said = "", saidThere = ""] = views.map((view) => view && questionOf(view.turn));
    const [answered = "", answeredThere = ""] = views.map((view) => view?.answerText);
    return html`<section class="stack" aria-label="Turn ${index + 1}">
      <h3>${index + 1}. Input</h3>
      ${diffTemplate(said, saidThere)}
      <h3>${index + 1}. Output</h3>
      ${diffTemplate(answered, answeredThere)}
    </section>`;
  }

  function branchTemplate(turns: readonly Turn[], title: string) {
    return html`<section class="card stack" role="region" aria-label=${title}>
      <h2>${title}</h2>
      ${turns.length === 0 ? html`<p class="note">Ends where the other one goes on.</p>` : growingList(turns, TURNS, turnTemplate)}
    </section>`;
  }

  function turnTemplate(turn: Turn) {
    return html`<article class="stack line-above pt-3">
      <h3 class="text-sm wrap-anywhere"><a class="font-mono" href=${`#/responses/${turn.id}`}>${turn.id}</a></h3>
      <p class="note">${moment(turn.createdAt / 1_000)} · ${turn.model} · ${turn.status?.replaceAll("_", " ")}</p>
      ${viewOf(turn).element}
    </article>`;
  }
}

/** A turn in a few words. */
function nameOf({ key, text, answered }: Turn) {
  const said = text || answered;
  return said ? `“${beginning(said, 60)}”` : key;
}
