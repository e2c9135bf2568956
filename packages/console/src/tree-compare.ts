import { html, nothing, render } from "lit-html";
import { faultNotice, messageOf } from "./dialogs.ts";
import { moment } from "./format.ts";
import { linkButton } from "./share.ts";
import { nameOf } from "./tree-list.ts";
import type { Entry as EntryOfTreeModel } from "./tree-model.ts";
import { compared } from "./tree-model.ts";
import { showTurnItems, turnText } from "./turn-items.ts";
import { diffTemplate } from "./word-diff.ts";

/** Two branches side by side, from the point where they part. */
export type Entry = EntryOfTreeModel;

/** Turns of each branch that are shown at first and added with each click on "more". */
const TURNS = 10;

/** @param close Called when the user has seen enough. */
export function showBranches(element: HTMLElement, [one, other]: [one: Entry, other: Entry], close: () => void) {
  const parted = compared(one, other);
  const { common } = parted;
  const link = `#/chat/${other.node.id}/compare/${one.node.id}/${other.node.id}`;
  render(
    html`<div class="buttons">
        <button type="button" @click=${close}>Back to the chat</button>
        ${linkButton(link)}
      </div>
      <p>${
        common
          ? html`Both continue <a href=${`#/responses/${common.node.id}`}><bdi>${nameOf(common)}</bdi></a>, and part there.`
          : "They have nothing in common but the tree: each begins anew."
      }</p>
      ${differences(parted.one, parted.other)}
      <div class="tree-branches">${branch(parted.one, "One branch")}${branch(parted.other, "The other branch")}</div>`,
    element,
  );
}

/** The words that differ: turn by turn, as far as both branches go. */
function differences(one: readonly Entry[], other: readonly Entry[]) {
  const element = document.createElement("details");
  element.className = "card";
  const inner = document.createElement("div");
  inner.className = "stack inner";
  const summary = document.createElement("summary");
  summary.textContent = "Words that differ";
  element.append(summary, inner);
  element.addEventListener("toggle", () => void load(), { once: true });
  return element;

  async function load() {
    const { signal } = new AbortController();
    const length = Math.min(TURNS, Math.max(one.length, other.length));
    const textOf = async (entry: Entry | undefined) =>
      entry ? turnText(entry.node.id, signal) : { input: "", output: "" };
    render(html`<p class="note">Loading…</p>`, inner);
    try {
      const pairs = await Promise.all(
        Array.from({ length }, (_, index) => Promise.all([textOf(one[index]), textOf(other[index])])),
      );
      render(
        pairs.map(
          ([a, b], index) => html`<section class="stack" aria-label="Turn ${index + 1}">
            <h3>${index + 1}. Input</h3>
            ${diffTemplate(a.input, b.input)}
            <h3>${index + 1}. Output</h3>
            ${diffTemplate(a.output, b.output)}
          </section>`,
        ),
        inner,
      );
    } catch (error) {
      render(faultNotice(messageOf(error)), inner);
    }
  }
}

function branch(entries: readonly Entry[], title: string) {
  const section = document.createElement("section");
  section.className = "card stack";
  section.setAttribute("aria-label", title);
  let shown = 0;
  const turns: HTMLElement[] = [];
  const more = () => {
    for (const entry of entries.slice(shown, shown + TURNS)) turns.push(turnElement(entry));
    shown = turns.length;
    draw();
  };
  const draw = () =>
    render(
      html`<h2>${title}</h2>
        ${entries.length === 0 ? html`<p class="note">Ends where the other one goes on.</p>` : turns}
        ${shown < entries.length ? html`<p class="buttons"><button type="button" @click=${more}>Show more of ${entries.length - shown} turns</button></p>` : nothing}`,
      section,
    );
  more();
  return section;
}

function turnElement({ node }: Entry) {
  const article = document.createElement("article");
  article.className = "stack";
  const items = document.createElement("div");
  items.className = "turn-items stack";
  render(
    html`<h3 class="turn-title"><a class="mono" href=${`#/responses/${node.id}`}>${node.id}</a></h3>
      <p class="note">${moment(node.created_at)} · ${node.model} · ${node.status.replaceAll("_", " ")}</p>
      ${items}`,
    article,
  );
  void showTurnItems(items, node.id, new AbortController().signal);
  return article;
}
