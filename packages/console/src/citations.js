import { html, nothing, render } from "lit-html";
import { callJson } from "./api.js";
import { faultNotice, messageWithField } from "./dialogs.js";
import { pagesTag, passageText, wordsOf } from "./passage.js";

/**
 * The files that a text cites, with the passages of them that were found. The text has numbers, and a list below it has
 * the files.
 *
 * @typedef {object} Citation
 * @property {string} key key of the part that has the text
 * @property {number} index in the text, in UTF-16 units
 * @property {string} fileId
 * @property {string} filename
 *
 * @typedef {object} Around The response that an item belongs to
 * @property {() => Record<string, any>[]} items
 * @property {() => Record<string, any> | undefined} response
 *
 * @typedef {object} Passage
 * @property {string} text
 * @property {number | null} [page]
 * @property {number | null} [lastPage]
 *
 * @typedef {object} Source
 * @property {number} number
 * @property {string} fileId
 * @property {string} filename
 * @property {string} cited the text before its first citation
 * @property {boolean} isOpen
 * @property {boolean} isAsking
 * @property {Passage[] | undefined} passages the passages most similar to the cited text first
 * @property {string} fault
 */

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
  /** @type {Map<string, Source>} */
  #sources = new Map();
  /** The numbers in the text, by part and index. @type {Map<string, HTMLButtonElement>} */
  #numbers = new Map();

  /** @param {Around} around */
  constructor(around) {
    this.#around = around;
  }

  /**
   * Takes the citations of a text, and gives what is to stand in it.
   * @param {readonly Citation[]} citations
   * @param {string} text
   * @returns {import("./long-text.js").Insert[]}
   */
  take(citations, text) {
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

  /** @param {string} key @param {Source} source */
  #numberOf(key, source) {
    const name = `${key}:${source.number}`;
    const known = this.#numbers.get(name);
    if (known) return known;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "cite";
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

  /** @param {Source} source */
  #idOf({ number }) {
    return `${this.#id}-${number}`;
  }

  /** @param {Source} source */
  #toggle(source) {
    source.isOpen = !source.isOpen;
    if (source.isOpen && source.passages === undefined && !source.isAsking) void this.#ask(source);
    this.#draw();
  }

  /** Shows what the response has of a file, and asks for what it has not. @param {Source} source */
  async #ask(source) {
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

  /** @param {Source} source @returns {Passage[]} */
  #given({ fileId }) {
    const results = this.#calls().flatMap((call) => (Array.isArray(call.results) ? call.results : []));
    const texts = results.filter((each) => each?.file_id === fileId && typeof each.text === "string");
    return [...new Set(texts.map(({ text }) => text))].map((text) => ({ text }));
  }

  /** The file's chunks, with their pages, that the searches of the response find now. @param {Source} source @returns {Promise<Passage[]>} */
  async #found({ fileId, cited }) {
    const tools = this.#around.response()?.tools;
    const tool = Array.isArray(tools) ? tools.find(({ type }) => type === "file_search") : undefined;
    const queries = this.#calls().flatMap((call) => (Array.isArray(call.queries) ? call.queries : []));
    const asked = (queries.length > 0 ? queries : [cited]).filter((query) => query.trim() !== "").slice(0, 16);
    if (!tool || asked.length === 0) return [];
    const pages = await Promise.all(
      tool.vector_store_ids.map((/** @type {string} */ id) =>
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
    /** @type {import("./store-search.js").Found[]} */
    const all = pages.flatMap(({ data }) => data);
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
        : html`<ol class="sources" aria-label="Sources">${all.map((each) => this.#template(each))}</ol>`,
      this.element,
    );
  }

  /** @param {Source} source */
  #template(source) {
    const { filename, isOpen } = source;
    const id = this.#idOf(source);
    return html`<li>
      <button type="button" class="plain" aria-expanded=${String(isOpen)} aria-controls=${id} @click=${() => this.#toggle(source)}>
        <bdi class="file-name">${filename}</bdi>
      </button>
      <div id=${id} class="passages stack" role="group" aria-label=${`Passages of ${filename}`} tabindex="-1" ?hidden=${!isOpen}>${isOpen ? passagesTemplate(source) : nothing}</div>
    </li>`;
  }
}

/** @param {Source} source */
function passagesTemplate({ passages = [], cited, isAsking, fault }) {
  const isEmpty = passages.length === 0 && !isAsking && !fault;
  return html`
    ${passages.map(({ text, page, lastPage }) => html`<div>${pagesTag(page, lastPage)}${passageText(text, commonWords(text, cited))}</div>`)}
    ${isAsking && passages.length === 0 ? html`<p class="note">Loading…</p>` : nothing}
    ${isEmpty ? html`<p class="note">The passage is neither in the response nor, any more, in its vector stores.</p>` : nothing}
    ${faultNotice(fault)}
  `;
}

/** Long words that both the passage and the text citing it contain. @param {string} text @param {string} cited */
function commonWords(text, cited) {
  const said = [...wordsOf(cited)].filter((word) => word.length > 3);
  const there = wordsOf(text);
  return said.filter((word) => there.has(word));
}

/**
 * The passages that are most similar to the cited text, best first.
 * @param {Passage[]} passages
 * @param {string} cited
 */
function closest(passages, cited) {
  const ranked = passages.map((passage) => ({ passage, common: commonWords(passage.text, cited).length }));
  ranked.sort((one, other) => other.common - one.common);
  return ranked.slice(0, MAX_PASSAGES).map(({ passage }) => passage);
}
