import { html, nothing, render } from "lit-html";
import type { Turn } from "./chat-model.ts";
import { beginning, moment } from "./format.ts";
import { linkButton } from "./share.ts";
import { questionOf } from "./turn-parts.ts";
import type { TurnView } from "./turn-view.ts";
import { diffTemplate } from "./word-diff.ts";

/** Two branches of a chat side by side, from the point where they part. */

/** Turns of each branch that are shown at first and added with each click on "more". */
const TURNS = 10;

/**
 * @param paths the turns from the root to the end of each branch
 * @param viewOf gives a turn on the page, which reads it where it is not there yet
 * @param close Called when the user has seen enough.
 */
export function branchesElement(
  [one, other]: readonly [readonly Turn[], readonly Turn[]],
  viewOf: (turn: Turn) => TurnView,
  close: () => void,
) {
  const element = document.createElement("div");
  element.className = "stack";
  const parting = one.findIndex((turn, index) => turn !== other[index]);
  const shared = parting < 0 ? one.length : parting;
  const common = one[shared - 1];
  const branches = [one.slice(shared), other.slice(shared)] as const;
  const ends = [one.at(-1)?.id, other.at(-1)?.id];
  let shown = TURNS;
  let isDiffOpen = false;
  draw();
  return element;

  function draw() {
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
        <details class="card" @toggle=${toggled}>
          <summary>Words that differ</summary>
          ${isDiffOpen ? html`<div class="stack inner">${differences()}</div>` : nothing}
        </details>
        <div class="tree-branches turn-pair">
          ${branches.map((turns, index) => branchTemplate(turns, index === 0 ? "One branch" : "The other branch"))}
        </div>`,
      element,
    );
  }

  function toggled(event: Event) {
    isDiffOpen = (event.currentTarget as HTMLDetailsElement).open;
    update();
  }

  /** Draws, and again when the shown turns have been read. */
  function update() {
    draw();
    const turns = branches.flatMap((each) => each.slice(0, shown));
    void Promise.all(turns.map((turn) => viewOf(turn).restored)).then(draw);
  }

  /** Turn by turn, as far as both branches go. */
  function differences() {
    const length = Math.min(shown, Math.max(...branches.map((turns) => turns.length)));
    return Array.from({ length }, (_, index) => {
      const [a, b] = branches.map((turns) => turns[index]);
      const said = (turn: Turn | undefined) => (turn ? questionOf(turn) : "");
      const answered = (turn: Turn | undefined) => (turn ? viewOf(turn).answerText : "");
      return html`<section class="stack" aria-label="Turn ${index + 1}">
        <h3>${index + 1}. Input</h3>
        ${diffTemplate(said(a), said(b))}
        <h3>${index + 1}. Output</h3>
        ${diffTemplate(answered(a), answered(b))}
      </section>`;
    });
  }

  function branchTemplate(turns: readonly Turn[], title: string) {
    const more = () => {
      shown += TURNS;
      update();
    };
    return html`<section class="card stack" role="region" aria-label=${title}>
      <h2>${title}</h2>
      ${turns.length === 0 ? html`<p class="note">Ends where the other one goes on.</p>` : turns.slice(0, shown).map(turnTemplate)}
      ${shown < turns.length ? html`<p class="buttons"><button type="button" @click=${more}>Show more of ${turns.length - shown} turns</button></p>` : nothing}
    </section>`;
  }

  function turnTemplate(turn: Turn) {
    return html`<article class="stack not-first-of-type:line-above not-first-of-type:pt-3">
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
