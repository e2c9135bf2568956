import { html, nothing } from "lit-html";
import { ApiFault, callJson } from "./api.js";
import { faultNotice, messageWithField } from "./dialogs.js";

const PAGE_LENGTH = 50;

/** The longest page that the API gives. */
const LONGEST_PAGE = 100;

/**
 * A list of the API's that comes in pages, newest first.
 * @template {{ id: string }} Item
 */
export class PagedList {
  /** The loaded items. Undefined until the first page has come. @type {Item[] | undefined} */
  items;
  fault = "";
  /** The HTTP status of the fault. Undefined if there is none, or no answer came. @type {number | undefined} */
  faultStatus;
  #path;
  #redraw;
  #hasMore = false;
  /** Further fields of the query. @type {Record<string, string>} */
  #filter = {};
  /** The filter with which the items were loaded. */
  #loadedBy = this.#filter;

  /**
   * @param {string} path such as `/v1/batches`
   * @param {() => void} redraw Called after each change of the list.
   */
  constructor(path, redraw) {
    this.#path = path;
    this.#redraw = redraw;
  }

  /** Loads only certain items from now on. @param {Record<string, string>} filter further fields of the query */
  set filter(filter) {
    this.#filter = filter;
  }

  /** Loads the list again, as far as it was loaded. Throws an ApiFault. */
  async load() {
    const filter = this.#filter;
    const page = await this.#page(Math.min(LONGEST_PAGE, Math.max(PAGE_LENGTH, this.items?.length ?? 0)));
    // The filter has changed meanwhile.
    if (filter !== this.#filter) return;
    const items = this.#loadedBy === filter ? (this.items ?? []) : [];
    this.#loadedBy = filter;
    const last = items.findIndex(({ id }) => id === page.data.at(-1)?.id);
    const rest = page.has_more && last >= 0 ? items.slice(last + 1) : [];
    this.items = [...page.data, ...rest];
    if (rest.length === 0) this.#hasMore = page.has_more;
  }

  /** The same, but shows the fault. */
  refresh = () => this.attempt(() => this.load());

  /** Does something with the list, and shows its fault. @param {() => Promise<void>} work */
  async attempt(work) {
    try {
      await work();
      this.fault = "";
      this.faultStatus = undefined;
    } catch (error) {
      // Nothing of another filter stands beside the fault.
      if (this.#loadedBy !== this.#filter) this.items = undefined;
      this.fault = messageWithField(error);
      this.faultStatus = error instanceof ApiFault ? error.status : undefined;
    }
    this.#redraw();
  }

  /** Replaces an item, or adds it at the top. @param {Item} item */
  put(item) {
    const items = this.items ?? [];
    const isKnown = items.some(({ id }) => id === item.id);
    this.items = isKnown ? items.map((each) => (each.id === item.id ? item : each)) : [item, ...items];
  }

  /** @param {string} id */
  remove(id) {
    this.items = this.items?.filter((each) => each.id !== id);
  }

  /**
   * The fault, and the list.
   * @param {string} none the text of an empty list
   * @param {(items: readonly Item[]) => unknown} table the template of a list that is not empty
   */
  template(none, table) {
    return html`${faultNotice(this.fault)} ${this.rows(none, table)}`;
  }

  /** The list alone, where its fault stands elsewhere. @param {string} none @param {(items: readonly Item[]) => unknown} table */
  rows(none, table) {
    const { items, fault } = this;
    const list = items && (items.length === 0 ? html`<p class="note">${none}</p>` : table(items));
    return html`${list ?? (fault ? nothing : html`<p class="note">Loading…</p>`)}
      ${this.#hasMore ? html`<p class="buttons"><button type="button" @click=${this.#more}>Show more</button></p>` : nothing}`;
  }

  #more = () =>
    this.attempt(async () => {
      const after = this.items?.at(-1)?.id;
      const page = await this.#page(PAGE_LENGTH, after);
      // A refresh, or another filter, may have changed the end of the list meanwhile.
      if (this.items?.at(-1)?.id !== after || this.#loadedBy !== this.#filter) return;
      this.items = [...(this.items ?? []), ...page.data];
      this.#hasMore = page.has_more;
    });

  /** @param {number} limit @param {string} [after] @returns {Promise<{ data: Item[], has_more: boolean }>} */
  #page(limit, after) {
    const query = new URLSearchParams({ limit: String(limit), ...this.#filter, ...(after !== undefined && { after }) });
    return callJson(`${this.#path}?${query}`);
  }
}
