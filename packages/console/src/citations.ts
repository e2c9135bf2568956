import { comparedWords } from "@responses-edge/vector-search/words";
import { html, nothing, render } from "lit-html";
import { callJson } from "./api.ts";
import { faultNotice, messageWithField } from "./dialogs.ts";
import type { ApiObject } from "./json.ts";
import type { Insert } from "./long-text.ts";
import { type Found, pagesTag, passageText } from "./passage.ts";

/**
 * The files that a text cites, with the passages of them that were found. The text has numbers, and a list below it has
 * the files.
 */

export interface Citation {
  /** key of the part that has the text */
  key: string;
  /** in the text, in UTF-16 units */
  index: number;
  fileId: string;
  filename: string;
}

/** The response that an item belongs to */
export interface Around {
  items: () => ApiObject[];
  response: () => ApiObject | undefined;
}

export interface Passage {
  text: string;
  page?: number | null;
  lastPage?: number | null;
}

export interface Source {
  number: number;
  fileId: string;
  filename: string;
  /** the text before its first citation */
  cited: string;
  isOpen: boolean;
  isAsking: boolean;
  /** the passages most similar to the cited text first */
  passages: Passage[] | undefined;
  fault: string;
}

/** This much text before a citation counts as the cited text. UTF-16 units. */
const CITED_LENGTH = 400;

/** Passages of a file that are shown. */
const MAX_PASSAGES = 5;

/** A counter that makes ids on the page unique. */
let made = 0;

export class Sources {
  element = document.createElement("div");
  #around;
  #id = `sources-${++made}`;
  #sources: Map<string, Source> = new Map();
  /** The numbers in the text, by part and index. */
  #numbers: Map<string, HTMLButtonElement> = new Map();

  constructor(around: Around) {
    this.#around = around;
  }

  /** Takes the citations of a text, and gives what is to stand in it. */
  take(citations: readonly Citation[], text: string): Insert[] {
    const inserts = citations.map(({ key, index, fileId, filename }) => {
      let source = this.#sources.get(fileId);
      if (!source) {
        const cited = text.slice(Math.max(0, index - CITED_LENGTH), index);
        const number = this.#sources.size + 1;
        source = { number, fileId, filename, cited, isOpen: false, isAsking: false, passages: undefined, fault: "" };
        this.#sources.set(fileId, source);
      }
      return { at: index, element: this.#numberOf(`${key}:${index}`, source) };
    });
    this.#draw();
    return inserts;
  }

  #numberOf(key: string, source: Source) {
    const name = `${key}:${source.number}`;
    const known = this.#numbers.get(name);
    if (known) return known;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "tag busy mx-1 min-h-0 border-transparent py-0 align-[0.25em] font-semibold";
    button.textContent = String(source.number);
    button.setAttribute("aria-label", `Source ${source.number}: ${source.filename}`);
    button.addEventListener("click", () => {
      if (!source.isOpen) this.#toggle(source);
      const passages = document.getElementById(this.#idOf(source));
      passages?.focus();
      passages?.scrollIntoView({ block: "nearest" });
    });
    this.#numbers.set(name, button);
    return button;
  }

  #idOf({ number }: Source) {
    return `${this.#id}-${number}`;
  }

  #toggle(source: Source) {
    source.isOpen = !source.isOpen;
    if (source.isOpen && source.passages === undefined && !source.isAsking) void this.#ask(source);
    this.#draw();
  }

  /** Shows what the response has of a file, and asks for what it has not. */
  async #ask(source: Source) {
    const given = this.#given(source);
    if (given.length > 0) source.passages = closest(given, source.cited);
    source.isAsking = true;
    source.fault = "";
    try {
      const found = await this.#found(source);
      const known = source.passages ?? [];
      source.passages =
        known.length > 0
          ? known.map((passage) => found.find(({ text }) => text === passage.text) ?? passage)
          : closest(found, source.cited);
    } catch (error) {
      source.fault = messageWithField(error);
    }
    source.isAsking = false;
    this.#draw();
  }

  #calls() {
    return this.#around.items().filter(({ type }) => type === "file_search_call");
  }

  #given({ fileId }: Source): Passage[] {
    const results = this.#calls().flatMap((call) => (Array.isArray(call.results) ? call.results : []));
    const texts = results.filter((each) => each?.file_id === fileId && typeof each.text === "string");
    return [...new Set(texts.map(({ text }) => text))].map((text) => ({ text }));
  }

  /** The file's chunks, with their pages, that the searches of the response find now. */
  async #found({ fileId, cited }: Source): Promise<Passage[]> {
    const tools = this.#around.response()?.tools;
    const tool = Array.isArray(tools) ? tools.find(({ type }) => type === "file_search") : undefined;
    const queries = this.#calls().flatMap((call) => (Array.isArray(call.queries) ? call.queries : []));
    const asked = (queries.length > 0 ? queries : [cited]).filter((query) => query.trim() !== "").slice(0, 16);
    if (!tool || asked.length === 0) return [];
    const pages = await Promise.all(
      tool.vector_store_ids.map((id: string) =>
        callJson(`/v1/vector_stores/${encodeURIComponent(id)}/search`, {
          body: {
            query: asked,
            max_num_results: 50,
            ...(tool.filters && { filters: tool.filters }),
            include: ["explanation"],
          },
        }),
      ),
    );
    const all: Found[] = pages.flatMap(({ data }) => data);
    return all
      .filter(({ file_id }) => file_id === fileId)
      .map(({ content, explanation: { page, last_page: lastPage } }) => {
        return { text: content.map(({ text }) => text).join("\n"), page, lastPage };
      });
  }

  #draw() {
    const all = [...this.#sources.values()];
    render(
      all.length === 0
        ? nothing
        : html`<ol class="sources with-markers" aria-label="Sources">${all.map((each) => this.#template(each))}</ol>`,
      this.element,
    );
  }

  #template(source: Source) {
    const { filename, isOpen } = source;
    const id = this.#idOf(source);
    return html`<li>
      <button type="button" class="plain min-h-7 text-start underline" aria-expanded=${String(isOpen)} aria-controls=${id} @click=${() => this.#toggle(source)}>
        <bdi class="file-name">${filename}</bdi>
      </button>
      <div id=${id} class="stack tight" role="group" aria-label=${`Passages of ${filename}`} tabindex="-1" ?hidden=${!isOpen}>${isOpen ? passagesTemplate(source) : nothing}</div>
    </li>`;
  }
}

function passagesTemplate({ passages = [], cited, isAsking, fault }: Source) {
  const isEmpty = passages.length === 0 && !isAsking && !fault;
  return html`
    ${passages.map(({ text, page, lastPage }) => html`<div>${pagesTag(page, lastPage)}${passageText(text, commonWords(text, cited))}</div>`)}
    ${isAsking && passages.length === 0 ? html`<p class="note">Loading…</p>` : nothing}
    ${isEmpty ? html`<p class="note">The passage is neither in the response nor, any more, in its vector stores.</p>` : nothing}
    ${faultNotice(fault)}
  `;
}

/** Long words that both the passage and the text citing it contain. */
function commonWords(text: string, cited: string) {
  const said = [...comparedWords(cited)].filter((word) => word.length > 3);
  const there = comparedWords(text);
  return said.filter((word) => there.has(word));
}

/** The passages that are most similar to the cited text, best first. */
function closest(passages: Passage[], cited: string) {
  const ranked = passages.map((passage) => ({ passage, common: commonWords(passage.text, cited).length }));
  ranked.sort((one, other) => other.common - one.common);
  return ranked.slice(0, MAX_PASSAGES).map(({ passage }) => passage);
}
