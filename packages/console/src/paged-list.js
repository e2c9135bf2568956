import { html, nothing } from "lit-html";
import { callJson } from "./api.js";
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
  #path;
  #redraw;
  #hasMore = false;

  /**
   * @param {string} path such as `/v1/batches`
   * @param {() => void} redraw Called after each change of the list.
   */
  constructor(path, redraw) {
    this.#path = path;
    this.#redraw = redraw;
  }

  /** Loads the list again, as far as it was loaded. Throws an ApiFault. */
  async load() {
    const page = await this.#page(Math.min(LONGEST_PAGE, Math.max(PAGE_LENGTH, this.items?.length ?? 0)));
    const items = this.items ?? [];
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
    } catch (error) {
      this.fault = messageWithField(error);
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
   * @param {string} none the text of an empty list
   * @param {(items: readonly Item[]) => unknown} table the template of a list that is not empty
   */
  template(none, table) {
    const { items, fault } = this;
    const list = items && (items.length === 0 ? html`<p class="note">${none}</p>` : table(items));
    return html`${faultNotice(fault)} ${list ?? (fault ? nothing : html`<p class="note">Loading…</p>`)}
      ${this.#hasMore ? html`<p class="buttons"><button type="button" @click=${this.#more}>Show more</button></p>` : nothing}`;
  }

  #more = () =>
    this.attempt(async () => {
      const after = this.items?.at(-1)?.id;
      const page = await this.#page(PAGE_LENGTH, after);
      // A refresh may have changed the end of the list meanwhile.
      if (this.items?.at(-1)?.id !== after) return;
      this.items = [...(this.items ?? []), ...page.data];
      this.#hasMore = page.has_more;
    });

  /** @param {number} limit @param {string} [after] @returns {Promise<{ data: Item[], has_more: boolean }>} */
  #page(limit, after) {
    const query = new URLSearchParams({ limit: String(limit), ...(after !== undefined && { after }) });
    return callJson(`${this.#path}?${query}`);
  }
}
