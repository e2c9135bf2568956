import { html, nothing, render } from "lit-html";
import { announce } from "./announce.ts";
import { ApiFault, callJson } from "./api.ts";
import { typedIn } from "./form-events.ts";
import { count, moment } from "./format.ts";
import { recentResponses } from "./recent.ts";
import { linkButton } from "./share.ts";
import { showBranches } from "./tree-compare.ts";
import { nameOf, TreeList } from "./tree-list.ts";
import type { Entry as EntryOfTreeModel, TreeNode as TreeNodeOfTreeModel } from "./tree-model.ts";
import { compared, Tree } from "./tree-model.ts";
import { showTurnItems } from "./turn-items.ts";
import type { View } from "./view.ts";

/** A conversation as a tree: `#/tree/{id}` of a response or a conversation, `#/tree/{id}/compare/{one}/{other}`. */

export type Entry = EntryOfTreeModel;

export type TreeNode = TreeNodeOfTreeModel;

const PAGE_LENGTH = 100;

/** The maximum number of responses shown of one tree. */
const MAX_NODES = 20_000;

export function treeView(section: HTMLElement): View {
  /** The id of the response or conversation whose tree is shown. */
  let of: string | undefined;
  let tree: Tree | undefined;
  let chosen: Entry | undefined;
  /** The node to compare with the chosen one. */
  let marked: Entry | undefined;
  let branches: [one: Entry, other: Entry] | undefined;
  let isCut = false;
  let progress = "";
  let fault = "";
  /** The question that is in progress. */
  let asking = new AbortController();
  let reading = new AbortController();

  const list = new TreeList((entry) => choose(entry));
  const items = document.createElement("div");
  items.className = "turn-items stack";
  const comparison = document.createElement("div");

  async function load(id: string) {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    of = id;
    [tree, chosen, marked, branches] = [undefined, undefined, undefined, undefined];
    fault = "";
    progress = "Loading…";
    draw();
    try {
      const nodes = await allNodes(id, signal, (found) => {
        progress = `${count(found)} responses so far…`;
        draw();
      });
      isCut = nodes.length >= MAX_NODES;
      tree = new Tree(nodes);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiFault)) throw error;
      fault = error.message;
    }
    progress = "";
    draw();
    if (!tree) return;
    announce(`${count(tree.size)} responses, ${count(tree.leaves)} branches.`);
    list.set(tree, id);
    const own = tree.get(id);
    if (own) choose(own);
  }

  function choose(entry: Entry) {
    chosen = entry;
    reading.abort();
    reading = new AbortController();
    void showTurnItems(items, entry.node.id, reading.signal);
    draw();
  }

  function find(event: Event) {
    const found = list.find(typedIn(event).trim());
    announce(`${count(found)} found.`);
  }

  function mark() {
    marked = chosen;
    announce("Choose the turn to compare it with.");
    draw();
  }

  function compare(one: string, other: string) {
    const [first, second] = [tree?.get(one), tree?.get(other)];
    branches = first && second ? [first, second] : undefined;
    if (!branches) fault = "One of these responses is not in this tree.";
    draw();
  }

  function submit(event: SubmitEvent) {
    event.preventDefault();
    const id = section.querySelector("input")?.value.trim();
    if (!id) return;
    const hash = `#/tree/${encodeURIComponent(id)}`;
    if (location.hash === hash) void load(id);
    else {
      of = undefined;
      location.hash = hash;
    }
  }

  function draw() {
    render(
      html`<div class="stack">
        <h1 class="unseen">Tree</h1>
        <form class="look-up" @submit=${submit}>
          <label class="unseen" for="tree-id">Response or conversation</label>
          <input dir="auto" id="tree-id" autocomplete="off" spellcheck="false" placeholder="resp_… or conv_…" .value=${of ?? ""} />
          <button type="submit">Show</button>
        </form>
        ${fault ? html`<p class="notice bad" dir="auto" role="alert">${fault}</p>` : nothing}
        ${progress ? html`<p class="note">${progress}</p>` : nothing}
        ${of === undefined ? recentResponses("tree") : nothing}
        ${tree && !branches ? treeTemplate(tree) : nothing}
        ${branches ? compareTemplate(branches) : nothing}
      </div>`,
      section,
    );
  }

  function treeTemplate(shown: Tree) {
    if (shown.size === 0) return html`<p class="note">No response has been made here yet, or none is kept.</p>`;
    return html`
      <div class="tree-tools">
        <div>
          <label for="tree-find">Find</label>
          <input dir="auto" id="tree-find" type="search" autocomplete="off" spellcheck="false" placeholder="in what was said" @input=${find} />
        </div>
        <button type="button" @click=${() => list.foldAll(true)}>Close all</button>
        <button type="button" @click=${() => list.foldAll(false)}>Open all</button>
        <p class="note">
          ${count(shown.size)} responses, ${count(shown.leaves)} ${shown.leaves === 1 ? "branch" : "branches"}.
          ${isCut ? "There are more, which are not shown." : nothing}
        </p>
      </div>
      <div class="tree-panes">
        <div class="card tree-pane">${list.element}</div>
        <div class="card tree-turn" aria-live="off">${chosen ? turnTemplate(chosen) : html`<p class="note">Choose a turn to see what was said.</p>`}</div>
      </div>
    `;
  }

  function turnTemplate(entry: Entry) {
    const { node } = entry;
    return html`
      <h2 class="turn-title"><a class="mono" href=${`#/responses/${node.id}`}>${node.id}</a></h2>
      <p class="note">
        ${moment(node.created_at)} · ${node.model} · ${node.status.replaceAll("_", " ")}
        ${node.usage ? ` · ${count(node.usage.total_tokens)} tokens` : nothing}
        ${entry.isOrphan ? " · continues a response that was deleted" : nothing}
      </p>
      <div class="buttons">
        <a class="button" href=${`#/try?previous_response_id=${node.id}`}>Branch from here</a>
        ${
          marked && marked !== entry
            ? html`<a class="button" href=${`#/tree/${of}/compare/${marked.node.id}/${node.id}`}>Compare with <bdi>${nameOf(marked)}</bdi></a>`
            : html`<button type="button" aria-pressed=${String(marked === entry)} @click=${mark}>Compare with…</button>`
        }
        ${marked ? html`<button type="button" class="plain" @click=${unmark}>Compare nothing</button>` : nothing}
      </div>
      ${marked === entry ? html`<p class="notice">Now choose the other turn.</p>` : nothing}
      ${items}
    `;
  }

  function unmark() {
    marked = undefined;
    draw();
  }

  function compareTemplate([one, other]: [one: Entry, other: Entry]) {
    const { common } = compared(one, other);
    return html`
      <div class="buttons">
        <a class="button" href=${`#/tree/${of}`}>Back to the tree</a>
        ${linkButton(`#/tree/${of}/compare/${one.node.id}/${other.node.id}`)}
      </div>
      <p>${
        common
          ? html`Both continue <a href=${`#/responses/${common.node.id}`}><bdi>${nameOf(common)}</bdi></a>, and part there.`
          : "They have nothing in common but the tree: each begins anew."
      }</p>
      ${comparison}
    `;
  }

  return {
    show({ path: [id, verb, one, other] }) {
      if (id === undefined || id === "") return draw();
      void shown(id, verb === "compare" && one && other ? [one, other] : undefined);
    },
    signedIn() {
      if (of !== undefined) void load(of);
    },
  };

  async function shown(id: string, pair: [string, string] | undefined) {
    if (id !== of || !tree) await load(id);
    if (!tree) return;
    fault = "";
    branches = undefined;
    if (pair) {
      compare(...pair);
      if (branches) showBranches(comparison, branches);
    } else {
      draw();
      list.choose(chosen?.node.id);
    }
  }
}

/** All nodes of a tree, page by page. */
async function allNodes(id: string, signal: AbortSignal, onProgress: (found: number) => void): Promise<TreeNode[]> {
  const kind = id.startsWith("conv_") ? "conversations" : "responses";
  const path = `/v1/${kind}/${encodeURIComponent(id)}/tree?order=asc&limit=${PAGE_LENGTH}`;
  const nodes: TreeNode[] = [];
  for (let after = ""; nodes.length < MAX_NODES; ) {
    const page = await callJson(path + after, { signal });
    nodes.push(...page.data);
    if (!page.has_more) break;
    onProgress(nodes.length);
    after = `&after=${encodeURIComponent(page.last_id)}`;
  }
  return nodes;
}
