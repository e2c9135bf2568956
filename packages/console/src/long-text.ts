import { html, nothing, render } from "lit-html";
import { count } from "./format.ts";
import { copy, download } from "./save.ts";

/** Characters that are shown at first and added with each click on "more". */
const FIRST = 20_000;
const MORE = 100_000;

/** Characters of one text node. Appending to a long node lays out the whole node again. */
const NODE_LENGTH = 4_000;

const changed: Set<GrowingText> = new Set();

function drawChanged() {
  for (const text of changed) text.draw();
  changed.clear();
}

/** An element within a text that is not part of the text */
export interface Insert {
  /** the index of the character after it */
  at: number;
  element: HTMLElement;
}

/**
 * A text of any length that may still be growing. The page shows the beginning, and more when the user asks for it: a
 * browser takes seconds to lay out a line of megabytes. The user can copy and save the whole text. New text is shown in
 * the next frame, for all texts of the page together.
 */
export abstract class GrowingText {
  /** To be put into the page. */
  element = document.createElement("div");
  #body;
  #fileName;
  #text = "";
  #limit = FIRST;
  #more = document.createElement("div");
  /** In ascending order. */
  protected inserts: readonly Insert[] = [];

  /** @param fileName the name of the saved file */
  constructor(body: HTMLElement, className: string, fileName: string) {
    this.#body = body;
    this.#fileName = fileName;
    this.element.className = className;
    this.element.append(body, this.#more);
  }

  /** Shows the text from its beginning to the index `end`. The text that is shown already was not changed. */
  protected abstract show(text: string, end: number): void;

  /** Called when nothing is shown any more. */
  protected abstract cleared(): void;

  get length() {
    return this.#text.length;
  }

  text() {
    return this.#text;
  }

  append(text: string) {
    if (text === "") return;
    this.#text += text;
    this.drawSoon();
  }

  /** Replaces the text. An equal text changes nothing. */
  set(text: string) {
    if (text.length === this.length && text === this.#text) return;
    if (!text.startsWith(this.#text)) this.#clear();
    this.#text = text;
    this.drawSoon();
  }

  /** Sets the elements that are inserted into the text. */
  insert(inserts: readonly Insert[]) {
    const sorted = inserts.toSorted((one, other) => one.at - other.at);
    const isSame = ({ at, element }: Insert, index: number) =>
      this.inserts[index]?.at === at && this.inserts[index]?.element === element;
    if (sorted.length === this.inserts.length && sorted.every(isSame)) return;
    this.inserts = sorted;
    this.#clear();
    this.drawSoon();
  }

  #clear() {
    this.#body.replaceChildren();
    this.cleared();
  }

  protected drawSoon() {
    // A tab in the background has no frames.
    if (changed.size === 0 && document.hidden) setTimeout(drawChanged, 200);
    else if (changed.size === 0) requestAnimationFrame(drawChanged);
    changed.add(this);
  }

  draw() {
    const { length } = this;
    const end = Math.min(length, this.#limit);
    this.show(this.#text, end);
    const button = (label: string, press: (event: Event) => void) =>
      html`<button type="button" class="plain" @click=${press}>${label}</button>`;
    const more = () => {
      this.#limit += MORE;
      this.draw();
    };
    const line = html`<p class="more note buttons mt-1.5">
      <span>${count(end)} of ${count(length)} characters shown.</span>
      ${button(`Show ${count(MORE)} more`, more)}
      ${button("Copy all", (event) => void copy(event, this.#text))}
      ${button("Save all", () => download(this.#fileName, this.#text))}
    </p>`;
    render(end === length ? nothing : line, this.#more);
  }
}

/** A text that is shown as it is. */
export class LongText extends GrowingText {
  #pre;
  #shown = 0;
  /** The number of inserts on the page. */
  #inserted = 0;

  /** @param options `fileName`: the name of the saved file; `dir`: the direction of writing */
  constructor(
    text: string = "",
    { fileName = "text.txt", dir = "auto" }: { fileName?: string; dir?: "auto" | "ltr" } = {},
  ) {
    const pre = document.createElement("pre");
    pre.dir = dir;
    super(pre, "long-text", fileName);
    this.#pre = pre;
    this.set(text);
  }

  protected override cleared() {
    this.#shown = 0;
    this.#inserted = 0;
  }

  protected override show(text: string, end: number) {
    while (this.#shown < end) {
      this.#insertUpTo(this.#shown);
      let node = this.#pre.lastChild;
      if (!(node instanceof Text) || node.length >= NODE_LENGTH) {
        node = document.createTextNode("");
        this.#pre.append(node);
      }
      const last = node as Text;
      const next = this.inserts[this.#inserted]?.at ?? end;
      const to = Math.min(end, next, this.#shown + NODE_LENGTH - last.length);
      last.appendData(text.slice(this.#shown, to));
      this.#shown = to;
    }
    if (end === text.length) this.#insertUpTo(Number.POSITIVE_INFINITY);
  }

  #insertUpTo(at: number) {
    for (let next = this.inserts[this.#inserted]; next && next.at <= at; next = this.inserts[this.#inserted]) {
      this.#pre.append(next.element);
      this.#inserted += 1;
    }
  }
}
