import { html, nothing, render } from "lit-html";
import { beginning, count, moment } from "./format.ts";
import type { Entry as EntryOfTreeModel, Tree as TreeOfTreeModel } from "./tree-model.ts";

/**
 * A tree as a list of rows. Only visible rows are on the page. The list is one tab stop and follows the ARIA pattern
 * for trees: the up and down arrows move, right opens or goes in, left closes or goes out, Home, End, Page Up and Page
 * Down jump, Enter chooses.
 */

export type Tree = TreeOfTreeModel;

export type Entry = EntryOfTreeModel;

/** The height of a row, in pixels. */
const ROW_HEIGHT = 56;

/** Extra rows above and below the visible ones. */
const SPARE_ROWS = 8;

/** Deeper rows get no further indentation. */
const MAX_INDENT = 16;

/** The expected status. Rows do not show it. */
const USUAL = "completed";

export class TreeList {
  /** To be put into the page. */
  element = document.createElement("div");
  #tree: Tree | undefined;
  #rows: Entry[] = [];
  #closed: Set<string> = new Set();
  #active = 0;
  /** The text of the search, in lower case. */
  #wanted = "";
  #chosen: string | undefined;
  #onChoose;
  #isDrawing = false;

  constructor(onChoose: (entry: Entry) => void) {
    this.#onChoose = onChoose;
    const { element } = this;
    element.className = "tree-list";
    element.tabIndex = 0;
    element.setAttribute("role", "tree");
    element.setAttribute("aria-label", "Turns of the conversation");
    element.style.setProperty("--row-height", `${ROW_HEIGHT}px`);
    element.addEventListener("scroll", () => this.#drawSoon(), { passive: true });
    element.addEventListener("keydown", (event) => this.#pressed(event));
    element.addEventListener("click", (event) => this.#clicked(event));
    new ResizeObserver(() => this.#drawSoon()).observe(element);
  }

  /**
   * Shows a tree; what was closed in it stays so.
   * @param chosen an id
   */
  set(tree: Tree, chosen: string | undefined) {
    this.#tree = tree;
    this.#chosen = chosen;
    this.#wanted = "";
    this.#fill();
    const at = this.#rows.findIndex(({ node }) => node.id === chosen);
    this.#active = Math.max(0, at);
    this.#scrollTo(this.#active);
    this.#draw();
  }

  /**
   * Shows only what has a text in its id or its previews, wherever it is; all of it for the empty one. Gives how many those are.
   */
  find(wanted: string) {
    this.#wanted = wanted.toLowerCase();
    this.#fill();
    this.#scrollTo(this.#active);
    this.#draw();
    return this.#rows.length;
  }

  /** Closes all that is continued, but for the roots, or opens it. */
  foldAll(isClosed: boolean) {
    this.#closed.clear();
    for (const { node, parent, children } of (isClosed && this.#tree?.rows(this.#closed)) || []) {
      if (parent && children.length > 0) this.#closed.add(node.id);
    }
    this.#fill();
    this.#scrollTo(this.#active);
    this.#draw();
  }

  choose(id: string | undefined) {
    this.#chosen = id;
    const at = this.#rows.findIndex(({ node }) => node.id === id);
    if (at >= 0) {
      this.#active = at;
      this.#scrollTo(at);
    }
    this.#draw();
  }

  #fill() {
    const id = this.#rows[this.#active]?.node.id;
    const rows = this.#tree?.rows(this.#wanted ? new Set() : this.#closed) ?? [];
    this.#rows = this.#wanted ? rows.filter(({ node }) => hasText(node, this.#wanted)) : rows;
    const at = this.#rows.findIndex(({ node }) => node.id === id);
    this.#active = Math.max(0, Math.min(at, this.#rows.length - 1));
  }

  #drawSoon() {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => {
      this.#isDrawing = false;
      this.#draw();
    });
  }

  #draw() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / ROW_HEIGHT) - SPARE_ROWS);
    const last = Math.min(this.#rows.length, Math.ceil((scrollTop + clientHeight) / ROW_HEIGHT) + SPARE_ROWS);
    const seen = this.#rows.slice(first, last);
    const space = (rows: number) => html`<div role="none" .style=${`height: ${rows * ROW_HEIGHT}px`}></div>`;
    render(
      html`${space(first)}${seen.map((entry, index) => this.#row(entry, first + index))}${space(this.#rows.length - last)}`,
      this.element,
    );
    const isActiveThere = this.#active >= first && this.#active < last;
    if (isActiveThere) this.element.setAttribute("aria-activedescendant", `turn-${this.#active}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  #row({ node, parent, children, index, depth, indent, isOrphan }: Entry, at: number) {
    const isClosed = this.#closed.has(node.id);
    const siblings = parent ? parent.children.length : (this.#tree?.roots.length ?? 1);
    const said = node.input?.text || (node.input ? `[${node.input.type}]` : "–");
    const answered = node.output?.text || (node.output ? `[${node.output.type}]` : "");
    return html`<div
      role="treeitem"
      id=${`turn-${at}`}
      data-at=${at}
      class="tree-row${at === this.#active ? " active" : ""}"
      .style=${`--indent: ${Math.min(indent, MAX_INDENT)}`}
      title=${moment(node.created_at)}
      aria-level=${depth}
      aria-setsize=${siblings}
      aria-posinset=${index + 1}
      aria-expanded=${children.length === 0 ? nothing : String(!isClosed)}
      aria-selected=${String(node.id === this.#chosen)}
    >
      <span class="tree-toggle" aria-hidden="true">${children.length === 0 ? "" : isClosed ? "▸" : "▾"}</span>
      <span class="tree-said" dir="auto">${isOrphan ? html`<span class="unseen" dir="ltr">Continues a deleted response. </span>` : nothing}${said}</span>
      <span class="tree-answered" dir="auto">${answered}</span>
      <span class="tree-facts">
        ${siblings > 1 ? html`<span class="tag">${count(index + 1)}/${count(siblings)}</span>` : nothing}
        ${node.status === USUAL ? nothing : html`<span class="tag ${node.status === "in_progress" || node.status === "queued" ? "busy" : "bad"}">${node.status.replaceAll("_", " ")}</span>`}
      </span>
    </div>`;
  }

  #scrollTo(at: number) {
    const { element } = this;
    const top = at * ROW_HEIGHT;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + ROW_HEIGHT > element.scrollTop + element.clientHeight) {
      // There is room for all rows before the element can be scrolled to one of them.
      this.#draw();
      element.scrollTop = top + ROW_HEIGHT - element.clientHeight;
    }
  }

  #go(at: number) {
    this.#active = Math.max(0, Math.min(at, this.#rows.length - 1));
    this.#scrollTo(this.#active);
    this.#draw();
  }

  #fold(at: number, isClosed: boolean) {
    const id = this.#rows[at]?.node.id;
    if (id === undefined) return;
    this.#active = at;
    if (isClosed) this.#closed.add(id);
    else this.#closed.delete(id);
    this.#fill();
    this.#draw();
  }

  #choose(at: number) {
    const entry = this.#rows[at];
    if (!entry) return;
    this.#active = at;
    this.#chosen = entry.node.id;
    this.#draw();
    this.#onChoose(entry);
  }

  #clicked(event: MouseEvent) {
    const target = event.target as Element;
    const row = target.closest("[data-at]");
    if (!(row instanceof HTMLElement)) return;
    const at = Number(row.dataset.at);
    const entry = this.#rows[at];
    if (target.closest(".tree-toggle") && entry && entry.children.length > 0) {
      this.#fold(at, !this.#closed.has(entry.node.id));
    } else this.#choose(at);
  }

  #pressed(event: KeyboardEvent) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const at = this.#active;
    const entry = this.#rows[at];
    if (!entry) return;
    const isClosed = this.#closed.has(entry.node.id);
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_HEIGHT) - 1);
    switch (event.key) {
      case "ArrowDown":
        this.#go(at + 1);
        break;
      case "ArrowUp":
        this.#go(at - 1);
        break;
      case "PageDown":
        this.#go(at + page);
        break;
      case "PageUp":
        this.#go(at - page);
        break;
      case "Home":
        this.#go(0);
        break;
      case "End":
        this.#go(this.#rows.length - 1);
        break;
      case "ArrowRight":
        if (isClosed) this.#fold(at, false);
        else if (entry.children.length > 0) this.#go(at + 1);
        break;
      case "ArrowLeft":
        if (!isClosed && entry.children.length > 0) this.#fold(at, true);
        else if (entry.parent) this.#go(this.#rows.indexOf(entry.parent));
        break;
      case "Enter":
      case " ":
        this.#choose(at);
        break;
      default:
        return;
    }
    event.preventDefault();
  }
}

/** @param wanted in small letters */
function hasText({ id, input, output }: Entry["node"], wanted: string) {
  return [id, input?.text, output?.text].some((text) => text?.toLowerCase().includes(wanted));
}

/** A node in a few words. */
export function nameOf({ node }: Entry) {
  const text = node.input?.text || node.output?.text;
  return text ? `“${beginning(text, 60)}”` : node.id;
}
