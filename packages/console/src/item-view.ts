import { html, nothing, render } from "lit-html";
import { announce } from "./announce.ts";
import { type Around, type Citation, Sources } from "./citations.ts";
import { messageOf } from "./dialogs.ts";
import { beginning, duration, isWebPage } from "./format.ts";
import { describe, type Item, type Part } from "./item-description.ts";
import { LongText } from "./long-text.ts";
import { MarkdownText } from "./markdown-text.ts";
import { passageText } from "./passage.ts";
import { saveFile } from "./save.ts";

/**
 * An item of a response or of its input, on the page. Texts of tools are shown as plain text. Texts of models use only
 * the elements that `markdown-view.js` makes. No HTML in a text takes effect, and no image is loaded from another site.
 */

/** The maximum number of links shown for one item. For more, the page shows their number. */
const MAX_LINKS = 50;

export function statusTag(status: string | undefined) {
  if (!status) return nothing;
  const isGood = ["completed", "delivered"].includes(status);
  const look = isGood ? "good" : ["failed", "cancelled", "expired", "incomplete"].includes(status) ? "bad" : "busy";
  return html`<span class="tag ${look}">${status.replaceAll("_", " ")}</span>`;
}

/** The beginning of JSON, which is shown as it is written. */
const JSON_BEGINNING = /^\s*(?:\{|\[\s*[[{"\d\]])/;

/** The beginning of the keys of an output's parts, in the card of its call. */
const OUTPUT = "output of the call ";

/** How often the time of a thought that goes on is told anew, milliseconds. */
const TICK_MS = 500;

export class ItemView {
  element = document.createElement("article");
  #item: Item;
  #texts: Map<string, LongText | MarkdownText> = new Map();
  #output: Item | undefined;
  /** Parts that events have begun, and the item does not have yet. */
  #begun: Set<string> = new Set();
  /** True if somebody has opened it, false if closed. */
  #isOpen: boolean | undefined;
  /** True if markdown is shown as it is written. */
  #isRaw = false;
  /** When its first event came, where it is still being made; milliseconds of this page. */
  #since: number | undefined;
  /** How long it took, in milliseconds, where the page has seen it being made. */
  #took: number | undefined;
  #tick: ReturnType<typeof setTimeout> | undefined;
  #sources;

  /**
   * @param around the response that it is of
   * @param isLive whether it is being made now
   */
  constructor(item: Item, around: Around = { items: () => [], response: () => undefined }, isLive: boolean = false) {
    this.#item = item;
    this.#sources = new Sources(around);
    if (isLive) this.#since = performance.now();
    this.#draw();
  }

  get item() {
    return this.#item;
  }

  /** Shows the output of the call that this item is, or takes it away. */
  setOutput(output: Item | undefined) {
    if (output === this.#output) return;
    this.#output = output;
    for (const key of [...this.#texts.keys()]) if (key.startsWith(OUTPUT)) this.#texts.delete(key);
    this.#draw();
  }

  /** Takes the item as it is now, when it is whole. */
  set(item: Item) {
    this.#item = item;
    this.#begun.clear();
    if (this.#since !== undefined) this.#took = performance.now() - this.#since;
    this.#since = undefined;
    this.#draw();
  }

  /** Takes an event of the item's; others than deltas say nothing that the item will not say. */
  apply(event: Item) {
    if (typeof event.delta !== "string") return;
    const key = partOf(event);
    const known = this.#texts.get(key);
    const into = this.#textOf(key, event.delta);
    into.append(event.delta);
    if (!known || !this.#begun.has(key)) {
      this.#begun.add(key);
      this.#draw();
    }
  }

  /** The text of a part. `beginning`: how a new one begins. */
  #textOf(key: string, beginning: string, isCode: boolean = false) {
    const known = this.#texts.get(key);
    if (known) return known;
    const isMarkdown = describe(this.#item).isMarkdown && !isCode && !this.#isRaw && !JSON_BEGINNING.test(beginning);
    const name = this.#item.id ?? "item";
    const made = isMarkdown ? new MarkdownText(`${name}.md`) : new LongText("", { fileName: `${name}.txt` });
    this.#texts.set(key, made);
    return made;
  }

  /** Shows markdown as it is written, or as what it means. */
  #toggleRaw = () => {
    this.#isRaw = !this.#isRaw;
    const texts = [...this.#texts].map(([key, text]) => [key, text.text()] as const);
    this.#texts.clear();
    for (const [key, whole] of texts) this.#textOf(key, whole).append(whole);
    this.#draw();
  };

  #draw() {
    const {
      title,
      name,
      status,
      by,
      kind,
      parts,
      isFolded = false,
      isMarkdown = false,
      ...rest
    } = describe(this.#item);
    const { links = [], files = [], citations = [], found = [] } = rest;
    const images = [...(rest.images ?? [])];
    this.element.className = `item stack gap-1.5 item-${kind} ${by ? "item-within ms-5" : ""}`;
    const shown = [...parts];
    if (this.#output) {
      const output = describe(this.#output);
      const label = output.kind === "input" ? output.title : "Output";
      // A decision has no text of its own.
      const said = output.parts.length > 0 ? output.parts : [{ key: "decision", text: "" }];
      shown.push(...said.map((part) => ({ ...part, key: OUTPUT + part.key, label: part.label ?? label })));
      images.push(...(output.images ?? []));
    }
    for (const key of this.#begun) {
      if (!shown.some((part) => part.key === key)) shown.push({ key, text: "", isCode: key === "arguments" });
    }
    const partTemplates = shown.map((part) => this.#partTemplate(part, citations));
    const heading = html`<span class="font-semibold text-muted">${title}</span>${name ? html` <code class="wrap-anywhere" dir="auto">${beginning(name, 200)}</code>` : nothing}
      ${by ? html`<span class="tag" dir="auto">${beginning(by, 200)}</span>` : nothing}
      ${status && status !== "completed" ? statusTag(status) : nothing}
      ${this.#timeTemplate(kind)}
      ${
        isMarkdown && (this.#isRaw || [...this.#texts.values()].some((each) => each instanceof MarkdownText))
          ? html`<button type="button" class="plain" aria-pressed=${this.#isRaw} @click=${this.#toggleRaw}>As written</button>`
          : nothing
      }`;
    const body = html`
      ${partTemplates}
      ${this.#sources.element}
      ${found.slice(0, MAX_LINKS).map(foundTemplate)}
      ${images.map((url) => html`<img class="max-h-56 max-w-[min(100%,320px)] rounded-md" src=${url} alt="Image" />`)}
      ${links.length > 0 ? html`<ul class="with-markers">${links.slice(0, MAX_LINKS).map(linkTemplate)}</ul>` : nothing}
      ${files.length > 0 ? html`<ul class="with-markers">${files.slice(0, MAX_LINKS).map(fileTemplate)}</ul>` : nothing}
      ${links.length > MAX_LINKS ? html`<p class="note">and ${links.length - MAX_LINKS} more</p>` : nothing}
    `;
    render(
      isFolded
        ? html`<details ?open=${this.#isOpen ?? this.#since !== undefined} @toggle=${this.#toggled}><summary>${heading}</summary>${body}</details>`
        : html`<header class="item-heading">${heading}</header>${body}`,
      this.element,
    );
  }

  #toggled = (event: Event) => {
    const { open } = event.currentTarget as HTMLDetailsElement;
    // Drawing opens and closes it, too.
    if (open !== (this.#isOpen ?? this.#since !== undefined)) this.#isOpen = open;
  };

  /** How long a thought has taken. */
  #timeTemplate(kind: string) {
    if (kind !== "reasoning") return nothing;
    const took = this.#took ?? (this.#since === undefined ? undefined : performance.now() - this.#since);
    if (this.#since !== undefined) {
      this.#tick ??= setTimeout(() => {
        this.#tick = undefined;
        if (this.#since !== undefined && this.element.isConnected) this.#draw();
      }, TICK_MS);
    }
    return took === undefined ? nothing : html`<span class="note">${duration(took)}</span>`;
  }

  #partTemplate({ key, label, text: whole, isCode }: Part, citations: Citation[]) {
    const long = this.#textOf(key, whole, isCode);
    // Streamed text is there already; while it is, the item has less of it.
    if (!this.#begun.has(key)) {
      long.set(whole);
      const own = citations.filter((each) => each.key === key);
      if (own.length > 0) long.insert(this.#sources.take(own, whole));
    }
    return html`<div class=${isCode ? "part code" : "part"}>${label ? html`<p class="mb-1 text-xs text-muted">${label}</p>` : nothing}${long.element}</div>`;
  }
}

/**
 * The element of an input item, which does not change: the same each time.
 * @param views of the input's items that have been on the page
 */
export function inputElement(item: Item, views: WeakMap<Item, ItemView>): HTMLElement {
  const view = views.get(item) ?? new ItemView(item);
  views.set(item, view);
  return view.element;
}

/** The key of the part that a delta adds to. */
function partOf({ content_index: content, summary_index: summary }: Item) {
  if (summary !== undefined) return `summary:${summary}`;
  return content === undefined ? "arguments" : `content:${content}`;
}

function foundTemplate({ filename, score, text: passage }: { filename: string; score: string; text: string }) {
  return html`<details>
    <summary><bdi class="file-name">${filename}</bdi> <span class="tag">score ${score}</span></summary>
    ${passageText(passage, [])}
  </details>`;
}

/** A file that code has written. */
function fileTemplate({ id, name }: { id: string; name: string }) {
  async function save(event: Event) {
    const button = event.currentTarget as HTMLButtonElement;
    button.disabled = true;
    await saveFile(id, name).catch((error) => announce(messageOf(error)));
    button.disabled = false;
  }
  return html`<li><button type="button" dir="auto" @click=${save}>Save ${beginning(name, 300)}</button></li>`;
}

function linkTemplate({ href, label }: { href: string; label: string }) {
  const shown = beginning(label, 300);
  return isWebPage(href)
    ? html`<li dir="auto"><a href=${href} target="_blank" rel="noopener noreferrer nofollow">${shown}</a></li>`
    : html`<li dir="auto">${shown}</li>`;
}
