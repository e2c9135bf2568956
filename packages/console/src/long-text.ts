import { html, nothing, render } from "lit-html";
import { count } from "./format.ts";
import { copy, download } from "./save.ts";

/**
 * A text of any length that may still be growing. The page shows the beginning, and more when the user asks for it: a
 * browser takes seconds to lay out a line of megabytes. The user can copy and save the whole text. Appended text is
 * shown in the next frame, for all texts of the page together.
 */

/** Characters that are shown at first and added with each click on "more". */
export const FIRST = 20_000;
const MORE = 100_000;

/** Characters of one text node. Appending to a long node lays out the whole node again. */
const NODE_LENGTH = 4_000;

/** A text on the page. */
export type Drawn = { draw(): void };

const changed: Set<Drawn> = new Set();

function drawChanged() {
  for (const text of changed) text.draw();
  changed.clear();
}

/** Draws a text with the next frame, at once with all others of the page. */
export function drawSoon(text: Drawn) {
  if (changed.size === 0) {
    // A tab in the background has no frames.
    if (document.hidden) setTimeout(drawChanged, 200);
    else requestAnimationFrame(drawChanged);
  }
  changed.add(text);
}

/** An element within a text that is not part of the text */
export interface Insert {
  /** the index of the character after it */
  at: number;
  element: HTMLElement;
}

export class LongText {
  /** To be put into the page. */
  element = document.createElement("div");
  /** Characters so far. */
  length = 0;
  #pieces: string[] = [];
  #shown = 0;
  #limit = FIRST;
  /** The first piece that is not shown completely, and its offset in the text. */
  #next = { piece: 0, offset: 0 };
  #pre = document.createElement("pre");
  #more = document.createElement("div");
  #fileName;
  /** In ascending order. */
  #inserts: readonly Insert[] = [];
  /** The number of inserts on the page. */
  #inserted = 0;

  /** @param options `fileName`: the name of the saved file; `dir`: the direction of writing */
  constructor(
    text: string = "",
    { fileName = "text.txt", dir = "auto" }: { fileName?: string; dir?: "auto" | "ltr" } = {},
  ) {
    this.#fileName = fileName;
    this.element.className = "long-text";
    this.#pre.dir = dir;
    this.element.append(this.#pre, this.#more);
    if (text !== "") this.append(text);
  }

  append(text: string) {
    if (text === "") return;
    this.#pieces.push(text);
    this.length += text.length;
    drawSoon(this);
  }

  /** Replaces the text. An equal text changes nothing. */
  set(text: string) {
    if (text.length === this.length && text === this.text()) return;
    this.#pieces = [];
    this.length = 0;
    this.#drawAnew();
    this.append(text);
  }

  /** Sets the elements that are inserted into the text. */
  insert(inserts: readonly Insert[]) {
    const sorted = sortedInserts(inserts, this.#inserts);
    if (!sorted) return;
    this.#inserts = sorted;
    this.#drawAnew();
  }

  #drawAnew() {
    this.#shown = 0;
    this.#inserted = 0;
    this.#next = { piece: 0, offset: 0 };
    this.#pre.replaceChildren();
    drawSoon(this);
  }

  text() {
    if (this.#pieces.length > 1) {
      const text = this.#pieces.join("");
      // The shown part ends at the end of the shown pieces.
      this.#pieces = [text];
      this.#next = { piece: 0, offset: this.#shown };
    }
    return this.#pieces[0] ?? "";
  }

  draw() {
    let left = this.#limit - this.#shown;
    while (left > 0 && this.#next.piece < this.#pieces.length) {
      const piece = this.#pieces[this.#next.piece] ?? "";
      const part = piece.slice(this.#next.offset, this.#next.offset + left);
      this.#show(part);
      left -= part.length;
      this.#next.offset += part.length;
      if (this.#next.offset >= piece.length) this.#next = { piece: this.#next.piece + 1, offset: 0 };
    }
    if (this.#shown === this.length) this.#insertUpTo(Number.POSITIVE_INFINITY);
    const more = (by: number) => {
      this.#limit += by;
      this.draw();
    };
    drawMore(this.#more, this.#shown, this.length, more, () => this.text(), this.#fileName);
  }

  #insertUpTo(at: number) {
    for (let next = this.#inserts[this.#inserted]; next && next.at <= at; next = this.#inserts[this.#inserted]) {
      this.#pre.append(next.element);
      this.#inserted += 1;
    }
  }

  #show(part: string) {
    for (let at = 0; at < part.length; ) {
      this.#insertUpTo(this.#shown + at);
      const whole = (this.#inserts[this.#inserted]?.at ?? Number.POSITIVE_INFINITY) - this.#shown;
      let node = this.#pre.lastChild;
      if (!(node instanceof Text) || node.length >= NODE_LENGTH) {
        node = document.createTextNode("");
        this.#pre.append(node);
      }
      const text = node as Text;
      const chunk = part.slice(at, Math.min(whole, at + NODE_LENGTH - text.length));
      text.appendData(chunk);
      at += chunk.length;
    }
    this.#shown += part.length;
  }
}

/** The inserts in their order; undefined if they are those of before. */
export function sortedInserts(inserts: readonly Insert[], before: readonly Insert[]): Insert[] | undefined {
  const sorted = inserts.toSorted((one, other) => one.at - other.at);
  const isSame = ({ at, element }: Insert, index: number) =>
    before[index]?.at === at && before[index]?.element === element;
  return sorted.length === before.length && sorted.every(isSame) ? undefined : sorted;
}

/** Draws the line below a text of which only the beginning is shown, with what can be done with the rest. */
export function drawMore(
  element: HTMLElement,
  shown: number,
  length: number,
  more: (by: number) => void,
  text: () => string,
  fileName: string,
) {
  const button = (label: string, press: (event: Event) => void) =>
    html`<button type="button" class="plain" @click=${press}>${label}</button>`;
  render(
    shown === length
      ? nothing
      : html`<p class="more note buttons">
          <span>${count(shown)} of ${count(length)} characters shown.</span>
          ${button(`Show ${count(MORE)} more`, () => more(MORE))}
          ${button("Copy all", (event) => void copy(event, text()))}
          ${button("Save all", () => download(fileName, text()))}
        </p>`,
    element,
  );
}
