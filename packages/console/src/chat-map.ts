import { html, nothing, render } from "lit-html";
import { announce } from "./announce.ts";
import type { Chat, Row, Turn } from "./chat-model.ts";
import { typedIn } from "./form-events.ts";
import { count, moment } from "./format.ts";
import { statusTag } from "./item-view.ts";

/** The height of a row, in pixels. */
const ROW_HEIGHT = 56;

/** Extra rows above and below the visible ones. */
const SPARE_ROWS = 8;

/** Deeper rows get no further indentation. */
const MAX_INDENT = 16;

/**
 * The map of a chat: all of its turns as a tree. The chosen one is at the end of the path. Only visible rows are on the page. The
 * list is one tab stop and follows the ARIA pattern for trees: the up and down arrows move, right opens or goes in, left
 * closes or goes out, Home, End, Page Up and Page Down jump, Enter chooses.
 */
export class ChatMap {
  element = document.createElement("div");
  #tree = document.createElement("div");
  #chat: Chat | undefined;
  #rows: Row[] = [];
  /** The keys of closed turns. */
  #closed: Set<string> = new Set();
  #active = 0;
  #chosen: string | undefined;
  /** The text of the search, in lower case. */
  #wanted = "";
  /** The turn with which another one is to be compared. */
  #marked: Turn | undefined;
  #choose;
  #compare;

  /** @param compare Called with two turns whose branches are to be shown side by side. */
  constructor(choose: (turn: Turn) => void, compare: (one: Turn, other: Turn) => void) {
    this.#choose = choose;
    this.#compare = compare;
    this.element.className = "chat-map stack";
    const tree = this.#tree;
    tree.className = "tree-list max-h-[50dvh] overflow-y-auto overscroll-contain rounded-lg";
    tree.tabIndex = 0;
    tree.setAttribute("role", "tree");
    tree.setAttribute("aria-label", "Turns of the conversation");
    tree.style.setProperty("--row-height", `${ROW_HEIGHT}px`);
    tree.addEventListener("scroll", () => this.#drawRows(), { passive: true });
    tree.addEventListener("keydown", (event) => this.#pressed(event));
    tree.addEventListener("click", (event) => this.#clicked(event));
    new ResizeObserver(() => this.#drawRows()).observe(tree);
  }

  /** Shows a chat, and the end of its path. */
  show(chat: Chat) {
    this.#chat = chat;
    const end = chat.path().at(-1)?.key;
    const isOther = end !== this.#chosen;
    this.#chosen = end;
    this.#fill();
    this.#draw();
    if (isOther) this.#go(this.#indexOf(end));
  }

  #draw() {
    const turns = [...(this.#chat?.turns ?? [])];
    const leaves = turns.filter((turn) => this.#chat?.childrenOf(turn).length === 0).length;
    const mark = () => {
      this.#marked = this.#marked ? undefined : this.#chat?.path().at(-1);
      if (this.#marked) announce("Choose the turn to compare it with.");
      this.#draw();
    };
    const find = (event: Event) => {
      this.#wanted = typedIn(event).trim().toLowerCase();
      this.#fill();
      this.#go(this.#active);
      announce(`${count(this.#rows.length)} found.`);
    };
    render(
      html`
        <h2>Map of the chat</h2>
        <p class="note">${count(turns.length)} ${turns.length === 1 ? "turn" : "turns"}, ${count(leaves)} ${leaves === 1 ? "branch" : "branches"}.</p>
        <label class="unseen" for="map-find">Find a turn</label>
        <input dir="auto" id="map-find" type="search" autocomplete="off" placeholder="Find a turn" @input=${find} />
        <div class="buttons">
          <button type="button" class="plain" @click=${() => this.#foldAll(true)}>Close all</button>
          <button type="button" class="plain" @click=${() => this.#foldAll(false)}>Open all</button>
          <button type="button" class="plain" aria-pressed=${String(this.#marked !== undefined)} @click=${mark}>Compare with…</button>
        </div>
        ${this.#marked ? html`<p class="notice">Now choose the other turn.</p>` : nothing}
        ${this.#tree}
      `,
      this.element,
    );
  }

  /** Closes all that is continued, but for the roots, or opens it. */
  #foldAll(isClosed: boolean) {
    const rows = (isClosed && this.#chat?.rows()) || [];
    const inner = rows.filter(({ depth, children }) => depth > 1 && children > 0);
    this.#closed = new Set(inner.map(({ turn }) => turn.key));
    this.#fill();
    this.#go(this.#active);
  }

  #fold({ turn }: Row, isClosed: boolean) {
    if (isClosed) this.#closed.add(turn.key);
    else this.#closed.delete(turn.key);
    this.#fill();
  }

  /** Takes the rows of the chat that are found or open. The active turn stays active. */
  #fill() {
    const active = this.#rows[this.#active]?.turn.key;
    const rows = this.#chat?.rows(this.#wanted ? undefined : this.#closed) ?? [];
    this.#rows = this.#wanted ? rows.filter(({ turn }) => hasText(turn, this.#wanted)) : rows;
    this.#active = Math.max(0, this.#indexOf(active));
    this.#drawRows();
  }

  #indexOf(key: string | undefined) {
    return this.#rows.findIndex(({ turn }) => turn.key === key);
  }

  /** Makes a row the active one. */
  #go(at: number) {
    this.#active = Math.max(0, Math.min(at, this.#rows.length - 1));
    const tree = this.#tree;
    const top = this.#active * ROW_HEIGHT;
    // There is room for all rows before the tree can be scrolled to one of them.
    this.#drawRows();
    tree.scrollTop = Math.min(top, Math.max(tree.scrollTop, top + ROW_HEIGHT - tree.clientHeight));
    this.#drawRows();
  }

  #drawRows() {
    const { scrollTop, clientHeight } = this.#tree;
    const first = Math.max(0, Math.floor(scrollTop / ROW_HEIGHT) - SPARE_ROWS);
    const last = Math.min(this.#rows.length, Math.ceil((scrollTop + clientHeight) / ROW_HEIGHT) + SPARE_ROWS);
    const space = (rows: number) => html`<div role="none" .style=${`height: ${rows * ROW_HEIGHT}px`}></div>`;
    const seen = this.#rows.slice(first, last).map((row, index) => this.#row(row, first + index));
    render(html`${space(first)}${seen}${space(this.#rows.length - last)}`, this.#tree);
    const isActiveThere = this.#active >= first && this.#active < last;
    this.#tree.setAttribute("aria-activedescendant", isActiveThere ? `turn-${this.#active}` : "");
  }

  #row({ turn, children, siblings, index, depth, indent }: Row, at: number) {
    const isClosed = this.#closed.has(turn.key);
    const status = turn.status ?? (turn.isOpen ? "in_progress" : "failed");
    return html`<div
      role="treeitem"
      id=${`turn-${at}`}
      data-at=${at}
      class="tree-row grid h-(--row-height) cursor-pointer grid-cols-[1.4rem_minmax(0,1fr)_auto] grid-rows-2 items-center gap-x-1 rounded-md py-1 ps-[calc(0.3rem+var(--indent)*1.1rem)] pe-3 hover:bg-sunken aria-selected:bg-accent-soft ${at === this.#active ? "active bg-sunken" : ""}"
      .style=${`--indent: ${Math.min(indent, MAX_INDENT)}`}
      title=${moment(turn.createdAt / 1_000)}
      aria-level=${depth}
      aria-setsize=${siblings}
      aria-posinset=${index + 1}
      aria-expanded=${children === 0 ? nothing : String(!isClosed)}
      aria-selected=${String(turn.key === this.#chosen)}
    >
      <span class="tree-toggle row-span-2 text-center text-muted" aria-hidden="true">${children === 0 ? "" : isClosed ? "▸" : "▾"}</span>
      <span class="tree-said cut font-semibold" dir="auto">${turn.isOrphan && depth === 1 ? html`<span class="unseen" dir="ltr">Continues a deleted response. </span>` : nothing}${turn.text || "–"}</span>
      <span class="cut col-span-2 col-start-2 row-start-2 text-sm text-muted" dir="auto">${turn.answered}</span>
      <span class="buttons">
        ${siblings > 1 ? html`<span class="tag">${count(index + 1)}/${count(siblings)}</span>` : nothing}
        ${status === "completed" ? nothing : statusTag(status)}
      </span>
    </div>`;
  }

  /** Chooses the active turn, or compares it with the marked one. */
  #take() {
    const { turn } = this.#rows[this.#active] ?? {};
    const marked = this.#marked;
    if (!turn) return;
    this.#marked = undefined;
    if (marked && marked !== turn) this.#compare(marked, turn);
    else this.#choose(turn);
    this.#draw();
  }

  #clicked({ target }: MouseEvent) {
    const at = Number((target as Element).closest<HTMLElement>("[data-at]")?.dataset.at);
    const row = this.#rows[at];
    if (!row) return;
    this.#go(at);
    if ((target as Element).closest(".tree-toggle") && row.children > 0)
      this.#fold(row, !this.#closed.has(row.turn.key));
    else this.#take();
  }

  #pressed(event: KeyboardEvent) {
    const at = this.#active;
    const row = this.#rows[at];
    if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
    const isClosed = this.#closed.has(row.turn.key);
    const page = Math.max(1, Math.floor(this.#tree.clientHeight / ROW_HEIGHT) - 1);
    const moves: Record<string, () => void> = {
      ArrowDown: () => this.#go(at + 1),
      ArrowUp: () => this.#go(at - 1),
      PageDown: () => this.#go(at + page),
      PageUp: () => this.#go(at - page),
      Home: () => this.#go(0),
      End: () => this.#go(this.#rows.length - 1),
      Enter: () => this.#take(),
      " ": () => this.#take(),
      ArrowRight: () => {
        if (isClosed) this.#fold(row, false);
        else if (row.children > 0) this.#go(at + 1);
      },
      ArrowLeft: () => {
        if (!isClosed && row.children > 0) this.#fold(row, true);
        else if (row.depth > 1) this.#go(this.#indexOf(row.turn.parent));
      },
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    move();
  }
}

/** @param wanted in small letters */
function hasText({ id, text, answered }: Turn, wanted: string) {
  return [id, text, answered].some((each) => each?.toLowerCase().includes(wanted));
}
