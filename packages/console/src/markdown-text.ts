import { html, render } from "lit-html";
import { codeBlock } from "./late-views.ts";
import { GrowingText } from "./long-text.ts";
import { blocksOf, fenceOf, loadMarkdown, readsMarkdown, type Token } from "./markdown-tokens.ts";
import { blockTemplate, markOf, withoutMarks } from "./markdown-view.ts";

/**
 * An answer in Markdown. Blocks that no further text can change are made once. Only the last block is parsed again as it
 * grows. A code block that is still open is not parsed again.
 */

/** At this length a block ends, and the rest becomes a paragraph of its own. */
const MAX_OPEN = 8_000;

/** A shorter block may be the beginning of any kind of block. */
const SHORT = 5;

export class MarkdownText extends GrowingText {
  /** The offset in the text up to which blocks are made. */
  #settled = 0;
  #blocks;
  /** The block that grows. */
  #open = document.createElement("div");

  /** @param fileName the name of the saved file */
  constructor(fileName: string) {
    const blocks = document.createElement("div");
    super(blocks, "markdown", fileName);
    this.#blocks = blocks;
    this.element.dir = "auto";
    this.#open.className = "block";
    blocks.append(this.#open);
  }

  protected override cleared() {
    this.#settled = 0;
    this.#blocks.append(this.#open);
  }

  protected override show(text: string, end: number) {
    if (!readsMarkdown()) {
      this.#drawOpen(html`<p dir="auto" class="unread">${text.slice(0, end)}</p>`);
      const again = () => readsMarkdown() && this.drawSoon();
      return void loadMarkdown().then(again, () => {});
    }
    // The replacement has the same length, because `#settled` counts characters.
    const source = text.slice(this.#settled, end).replaceAll("\r", " ");
    const fence = fenceOf(source);
    if (fence && !isClosed(source, fence)) {
      return this.#drawOpen(codeBlock(source.slice(fence.start), fence.language, true));
    }
    const blocks = blocksOf(this.#marked(source, this.#settled));
    const first = openFrom(blocks);
    for (const block of blocks.slice(0, first)) this.#settle(block);
    const open = blocks.slice(first);
    // A list or a paragraph without an end would be parsed again and again.
    if (open.reduce((sum, { raw }) => sum + raw.length, 0) > MAX_OPEN)
      for (const block of open.splice(0)) this.#settle(block);
    this.#drawOpen(open.map((block) => blockTemplate(block, this.#insertOf)));
  }

  #drawOpen(template: unknown) {
    render(template, this.#open);
  }

  #settle(block: Token) {
    this.#settled += withoutInserts(block.raw).length;
    const made = document.createElement("div");
    made.className = "block";
    render(blockTemplate(block, this.#insertOf), made);
    this.#open.before(made);
  }

  /** A part of the text, with marks at the positions of inserted elements. */
  #marked(source: string, from: number) {
    const clean = withoutMarks(source);
    let marked = "";
    let at = 0;
    for (const [number, insert] of this.inserts.entries()) {
      const place = insert.at - from;
      if (place < 0 || place > clean.length || (place === 0 && from > 0)) continue;
      marked += clean.slice(at, place) + markOf(number);
      at = place;
    }
    return marked + clean.slice(at);
  }

  #insertOf = (number: number) => this.inserts[number]?.element;
}

/**
 * Where the blocks begin that more text may change: the last one, and the one before a last one of which so little is there that it may yet be a
 * part of that, such as `2` after a list's first item.
 */
function openFrom(blocks: readonly { type: string; raw: string }[]) {
  const last = blocks.findLastIndex(({ type }) => type !== "space");
  const isShort = last > 0 && (blocks[last]?.raw.length ?? 0) < SHORT;
  return Math.max(0, isShort ? blocks.findLastIndex(({ type }, index) => index < last && type !== "space") : last);
}

function isClosed(source: string, { mark, start }: { mark: string; start: number }) {
  const [char = "`"] = mark;
  return new RegExp(`(?:^|\\n) {0,3}${char}{${mark.length},}[ \\t]*(?:\\n|$)`).test(source.slice(start));
}

function withoutInserts(raw: string) {
  return raw.replaceAll(/\ue000\d+\ue001/g, "");
}
