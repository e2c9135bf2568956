import { html, nothing, render } from "lit-html";
import type { Chat, Row, Turn } from "./chat-model.ts";
import { count, moment } from "./format.ts";
import { statusTag } from "./item-view.ts";

/**
 * The tree of a chat as a list of rows. Only visible rows are on the page. The list is one tab stop and follows the ARIA pattern
 * for trees: the up and down arrows move, right opens or goes in, left closes or goes out, Home, End, Page Up and Page
 * Down jump, Enter chooses.
 */

/** The height of a row, in pixels. */
const ROW_HEIGHT = 56;

/** Extra rows above and below the visible ones. */
const SPARE_ROWS = 8;

/** Deeper rows get no further indentation. */
const MAX_INDENT = 16;

export class TreeList {
  /** To be put into the page. */
  element = document.createElement("div");
  #chat: Chat | undefined;
  #rows: Row[] = [];
  #closed: Set<string> = new Set();
  #active = 0;
  /** The text of the search, in lower case. */
  #wanted = "";
  #chosen: string | undefined;
  #onChoose;
  #isDrawing = false;

  constructor(onChoose: (turn: Turn) => void) {
    this.#onChoose = onChoose;
    const { element } = this;
    element.className = "tree-list max-h-[50dvh] overflow-y-auto overscroll-contain rounded-lg";
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
   * Shows a chat. Closed turns stay closed, and the active one stays active until another one is chosen.
   * @param chosen the key of a turn
   */
  set(chat: Chat, chosen: string | undefined) {
    this.#chat = chat;
    this.#wanted = "";
    this.#fill();
    this.choose(chosen);
    this.#draw();
  }

  /**
   * Shows only turns with a text in their id, question or answer; all turns for the empty one. Gives their number.
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
    for (const { turn, depth, children } of (isClosed && this.#chat?.rows()) || []) {
      if (depth > 1 && children > 0) this.#closed.add(turn.key);
    }
    this.#fill();
    this.#scrollTo(this.#active);
    this.#draw();
  }

  /** Marks a turn. @param key of the turn */
  choose(key: string | undefined) {
    if (key === this.#chosen) return;
    this.#chosen = key;
    const at = this.#rows.findIndex(({ turn }) => turn.key === key);
    if (at >= 0) {
      this.#active = at;
      this.#scrollTo(at);
    }
    this.#draw();
  }

  #fill() {
    const key = this.#rows[this.#active]?.turn.key;
    const rows = this.#chat?.rows(this.#wanted ? undefined : this.#closed) ?? [];
    this.#rows = this.#wanted ? rows.filter(({ turn }) => hasText(turn, this.#wanted)) : rows;
    const at = this.#rows.findIndex(({ turn }) => turn.key === key);
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
    const key = this.#rows[at]?.turn.key;
    if (key === undefined) return;
    this.#active = at;
    if (isClosed) this.#closed.add(key);
    else this.#closed.delete(key);
    this.#fill();
    this.#draw();
  }

  #choose(at: number) {
    const row = this.#rows[at];
    if (!row) return;
    this.#active = at;
    this.#chosen = row.turn.key;
    this.#draw();
    this.#onChoose(row.turn);
  }

  #clicked(event: MouseEvent) {
    const target = event.target as Element;
    const element = target.closest("[data-at]");
    if (!(element instanceof HTMLElement)) return;
    const at = Number(element.dataset.at);
    const row = this.#rows[at];
    if (target.closest(".tree-toggle") && row && row.children > 0) this.#fold(at, !this.#closed.has(row.turn.key));
    else this.#choose(at);
  }

  #pressed(event: KeyboardEvent) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const at = this.#active;
    const row = this.#rows[at];
    if (!row) return;
    const isClosed = this.#closed.has(row.turn.key);
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_HEIGHT) - 1);
    const moves: Record<string, () => void> = {
      ArrowDown: () => this.#go(at + 1),
      ArrowUp: () => this.#go(at - 1),
      PageDown: () => this.#go(at + page),
      PageUp: () => this.#go(at - page),
      Home: () => this.#go(0),
      End: () => this.#go(this.#rows.length - 1),
      Enter: () => this.#choose(at),
      " ": () => this.#choose(at),
      ArrowRight: () => {
        if (isClosed) this.#fold(at, false);
        else if (row.children > 0) this.#go(at + 1);
      },
      ArrowLeft: () => {
        if (!isClosed && row.children > 0) this.#fold(at, true);
        else if (row.depth > 1) this.#go(this.#rows.findIndex(({ turn }) => turn.key === row.turn.parent));
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
