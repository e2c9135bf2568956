import { html, nothing } from "lit-html";
import { callJson } from "./api.ts";
import { messageWithField } from "./dialogs.ts";

const PAGE_LENGTH = 50;

/** The longest page that the API gives. */
const LONGEST_PAGE = 100;

/** A part of a list, as the API gives it. */
export interface Page<Item> {
  data: readonly Item[];
  has_more?: boolean;
}

/** A list of the API's that comes in pages, newest first. */
export class PagedList<Item extends { id: string }, Answer extends Page<Item> = Page<Item>> {
  /** The loaded items. Undefined until the first page has come. */
  items: Item[] | undefined;
  /** The answer with the first page. */
  answer: Answer | undefined;
  fault = "";
  #source;
  #redraw;
  #hasMore = false;
  /** Further fields of the query. */
  #filter: Record<string, string> = {};
  /** The filter with which the items were loaded. */
  loadedBy = this.#filter;

  /**
   * @param source a path such as `/v1/batches`, or a function that loads a list without pages
   * @param redraw Called after each change of the list.
   */
  constructor(source: string | ((filter: Record<string, string>) => Promise<Answer>), redraw: () => void) {
    this.#source = source;
    this.#redraw = redraw;
  }

  /**
   * Loads only certain items from now on.
   * @param filter further fields of the query
   */
  set filter(filter: Record<string, string>) {
    this.#filter = filter;
  }

  /** Loads the list again, as far as it was loaded. Throws an ApiFault. */
  async load() {
    const filter = this.#filter;
    const page = await this.#page(Math.min(LONGEST_PAGE, Math.max(PAGE_LENGTH, this.items?.length ?? 0)));
    // The filter has changed meanwhile.
    if (filter !== this.#filter) return;
    const items = this.loadedBy === filter ? (this.items ?? []) : [];
    this.loadedBy = filter;
    const last = items.findIndex(({ id }) => id === page.data.at(-1)?.id);
    const rest = page.has_more && last >= 0 ? items.slice(last + 1) : [];
    this.answer = page;
    this.items = [...page.data, ...rest];
    if (rest.length === 0) this.#hasMore = page.has_more === true && typeof this.#source === "string";
  }

  /** The same, but shows the fault. */
  refresh = () => this.attempt(() => this.load());

  /** Does something with the list, and shows its fault. */
  async attempt(work: () => Promise<void>) {
    try {
      await work();
      this.fault = "";
    } catch (error) {
      // Nothing of another filter stands beside the fault.
      if (this.loadedBy !== this.#filter) this.items = undefined;
      this.fault = messageWithField(error);
    }
    this.#redraw();
  }

  /** Replaces an item, or adds it at the top. */
  put(item: Item) {
    const items = this.items ?? [];
    const isKnown = items.some(({ id }) => id === item.id);
    this.items = isKnown ? items.map((each) => (each.id === item.id ? item : each)) : [item, ...items];
  }

  remove(id: string) {
    this.items = this.items?.filter((each) => each.id !== id);
  }

  /**
   * @param none the text of an empty list
   * @param table the template of a list that is not empty
   */
  rows(none: string, table: (items: readonly Item[]) => unknown) {
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
      if (this.items?.at(-1)?.id !== after || this.loadedBy !== this.#filter) return;
      this.items = [...(this.items ?? []), ...page.data];
      this.#hasMore = page.has_more === true;
    });

  #page(limit: number, after?: string): Promise<Answer> {
    if (typeof this.#source === "function") return this.#source(this.#filter);
    const query = new URLSearchParams({ limit: String(limit), ...this.#filter, ...(after !== undefined && { after }) });
    return callJson(`${this.#source}?${query}`);
  }
}
