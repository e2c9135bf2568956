import { html, nothing, render } from "lit-html";
import { guard } from "lit-html/directives/guard.js";
import { type Action, Actions, type Outcome } from "./actions.ts";
import { callJson } from "./api.ts";
import { type Column, objectsTable } from "./cards-table.ts";
import { faultNotice } from "./dialogs.ts";
import { type Form, fieldsTemplate, valuesIn } from "./fields.ts";
import { iconButton } from "./icons.ts";
import { statusTag } from "./item-view.ts";
import { figures, type Part, partsOf } from "./list-and-one.ts";
import { type Page, PagedList } from "./paged-list.ts";
import { Refresher } from "./refresher.ts";
import type { View } from "./view.ts";

/**
 * Lists of the API's objects, and a page for each of them. A description (`Resource`) says how a kind of object is listed,
 * filtered, shown, made and changed; `ResourceList` shows it. A list by itself:
 *
 *     const list = new ResourceList(resource);
 *     element.append(list.element);
 *     list.show(query); // each time it is shown; `query` is the query of the address, which has the filters
 *     list.hide();
 *
 * `sectionOf(resource)` makes a section of *Operate* of it, `resourceView(view, resource)` a view with the list and the pages.
 */
export interface Resource<Item extends { id: string }, Answer extends Page<Item> = Page<Item>> {
  /** The heading of the list. */
  title: string;
  /** The path of the API, such as `/v1/batches`, or a function that loads a list without pages. */
  source: string | ((filters: Filters) => Promise<Answer>);
  /** The address of the list, such as `#/batches`. The page of an object is below it. */
  address?: string;
  nameOf: (item: Item) => string;
  columns: readonly Column<Item>[] | ((items: readonly Item[], filters: Filters) => readonly Column<Item>[]);
  /** True of a table that the user opens: the figures of the charts in the note. */
  isFolded?: true;
  /** The text of an empty list; of one that is filtered, where it is another. */
  none: string;
  noneFiltered?: string;
  /** Fields of the address's query. */
  filters?: Form | ((filters: Filters) => Form);
  /** The API's query for the address's query. Default: the same. */
  queryOf?: (filters: Filters) => Filters;
  /** A template beside the heading. */
  choices?: (filters: Filters) => unknown;
  /** A template above the table. */
  note?: (answer: Answer, filters: Filters) => unknown;
  actions?: readonly Action<Item>[];
  /** Actions of the list, such as one that makes an object. */
  listActions?: readonly Action<undefined, Item>[];
  /** Makes an element between the heading and the list. `show`: called each time the list is shown. */
  above?: (list: ResourceList<Item, Answer>) => { element?: HTMLElement; show?: (query: URLSearchParams) => void };
  /** True of an object that changes by itself: it is loaded again until it does not. */
  isChanging?: (item: Item) => boolean;
  /** True of a list that is always loaded again. */
  isLive?: boolean;
  /** The time between two loads. Milliseconds. */
  everyMs?: number;
  /** Loads an object of a page. Default: by the path. */
  load?: (id: string) => Promise<Item>;
  page?: PageDescription<Item>;
}

/** The filters of a list, by name. */
export type Filters = Record<string, string>;

export interface PageDescription<Item> {
  status?: (item: Item) => string;
  /** Lines of named figures. */
  figures: (item: Item) => (readonly (readonly [name: string, value: unknown])[])[];
  /** A template below the figures. */
  more?: (item: Item) => unknown;
  /** Parts below the header. More than one stand side by side where there is room. */
  parts?: (id: string, page: { refresh: () => void }) => PagePart<Item>[];
}

export interface PagePart<Item> {
  element: HTMLElement;
  show?: () => void;
  hide?: () => void;
  /** Called with the object each time it was loaded. */
  update?: (item: Item) => void;
}

const EVERY_MS = 5_000;

/** A phone shows more filters than these only when they are asked for. */
const MAX_UNFOLDED = 3;

/** The list, or the page of one object. It is loaded when it is shown, and again while it changes. */
export class ResourceList<Item extends { id: string }, Answer extends Page<Item> = Page<Item>> implements Part {
  element = document.createElement("section");
  #resource;
  #level;
  #id;
  /** A page has its object alone. */
  #list: PagedList<Item, Answer>;
  #filters: Filters = {};
  /** The fault, and the result, of the last action. */
  #fault = "";
  #told = "";
  #refresher;
  #actions;
  #above;
  #parts: PagePart<Item>[];

  /**
   * @param level of the heading
   * @param id of the object that has the page
   */
  constructor(resource: Resource<Item, Answer>, level: 2 | 3 = 2, id?: string) {
    this.element.className = "stack";
    this.#resource = resource;
    this.#level = level;
    this.#id = id;
    const { source, load = (one: string) => callJson(`${source}/${encodeURIComponent(one)}`) } = resource;
    const page = async (one: string) => ({ data: [await load(one)] }) as Page<Item> as Answer;
    this.#list = new PagedList<Item, Answer>(id === undefined ? source : () => page(id), () => this.draw());
    this.#refresher = new Refresher(async () => {
      await this.#list.refresh();
      this.#update();
      // A load that failed tells nothing about an object.
      const isUnknown = id !== undefined && this.#list.fault !== "";
      return isUnknown || resource.isLive || this.#list.items?.some((item) => resource.isChanging?.(item)) === true;
    }, resource.everyMs ?? EVERY_MS);
    this.#actions = new Actions<Item>(
      (outcome, of) => this.#take(outcome, of),
      (fault) => {
        this.#fault = fault;
        this.draw();
      },
    );
    this.#above = id === undefined ? resource.above?.(this) : undefined;
    this.#parts = (id !== undefined && resource.page?.parts?.(id, this)) || [];
  }

  show(query = new URLSearchParams()) {
    this.#above?.show?.(query);
    const filters = Object.fromEntries(query);
    if (JSON.stringify(filters) !== JSON.stringify(this.#filters)) {
      this.#filters = filters;
      this.#list.filter = this.#resource.queryOf?.(filters) ?? filters;
    }
    this.draw();
    this.#refresher.start();
    for (const part of this.#parts) part.show?.();
  }

  hide() {
    this.#refresher.stop();
    for (const part of this.#parts) part.hide?.();
  }

  /** Does something with the list as if its button was pressed. */
  do(action: Action<undefined, Item>) {
    void this.#actions.do(action, undefined, "");
  }

  /** Loads it now. */
  refresh = () => void this.#refresher.now();

  #update() {
    const [item] = this.#list.items ?? [];
    if (item) for (const part of this.#parts) part.update?.(item);
  }

  #take({ item, isGone, told = "" }: Outcome<Item>, id: string) {
    if (item) this.#list.put(item);
    if (isGone) this.#list.remove(id);
    this.#told = told;
    this.#update();
    if (isGone && this.#id !== undefined) location.hash = this.#resource.address ?? "";
    this.draw();
    if (!isGone && (!item || this.#id !== undefined)) this.refresh();
  }

  #filter = (event: SubmitEvent) => {
    event.preventDefault();
    const { address = "" } = this.#resource;
    const given = valuesIn(this.#form, new FormData(event.currentTarget as HTMLFormElement));
    const query = String(new URLSearchParams(given));
    location.hash = query === "" ? address : `${address}?${query}`;
  };

  /** The fields of the filters. */
  get #form(): Form {
    const { filters = [] } = this.#resource;
    return typeof filters === "function" ? filters(this.#filters) : filters;
  }

  get #isFiltered() {
    return Object.keys(this.#filters).length > 0;
  }

  #filtersTemplate(filters: Form) {
    const isOfChoices = filters.every((each) => "kind" in each && each.kind === "choice");
    const { title, address = "" } = this.#resource;
    const form = html`<form class="filters" role="search" aria-label=${title} @submit=${this.#filter} @change=${chosen}>
      ${fieldsTemplate(filters, this.#filters, "filter")}
      ${isOfChoices ? nothing : html`<button type="submit">Show</button>`}
      ${!isOfChoices && this.#isFiltered ? html`<a class="button" href=${address}>Clear</a>` : nothing}
    </form>`;
    if (filters.length <= MAX_UNFOLDED) return form;
    const isOpen = this.#isFiltered || matchMedia("(min-width: 641px)").matches;
    return html`<details class="many-filters" ?open=${isOpen}><summary class="sm:hidden">Filters</summary>${form}</details>`;
  }

  draw() {
    const { title, address, choices, listActions = [] } = this.#resource;
    const form = this.#form;
    const faults = html`${faultNotice(this.#list.fault)} ${faultNotice(this.#fault)}`;
    render(
      this.#id !== undefined
        ? html`<p><a href=${address ?? ""}>All ${title.toLowerCase()}</a></p>
            ${faults} ${this.#list.rows("", ([item]) => item && this.#pageTemplate(item))}`
        : html`<div class="section-heading buttons spread">
              ${this.#level === 2 ? html`<h2>${title}</h2>` : html`<h3>${title}</h3>`}
              <div class="buttons">
                ${choices?.(this.#filters)} ${listActions.map((action) => this.#actions.button(action, undefined, ""))}
                ${iconButton("again", "Refresh", this.refresh)}
              </div>
            </div>
            ${faults} ${this.#above?.element ?? nothing} ${form.length > 0 ? this.#filtersTemplate(form) : nothing}
            ${this.#listTemplate()}`,
      this.element,
    );
  }

  #listTemplate() {
    const { title, note, columns, actions, nameOf, isFolded, none, noneFiltered = none } = this.#resource;
    const { answer, loadedBy: filters } = this.#list;
    const buttons = actions && ((item: Item) => this.#actions.buttons(actions, item, nameOf(item)));
    const table = (items: readonly Item[]) => {
      const shown = typeof columns === "function" ? columns(items, filters) : columns;
      const all = objectsTable(title, shown, items, buttons);
      return isFolded ? html`<details class="card"><summary>The figures as a table</summary>${all}</details>` : all;
    };
    return html`${answer && note ? guard([answer], () => note(answer, filters)) : nothing}
      ${this.#list.rows(this.#isFiltered ? noneFiltered : none, table)}`;
  }

  #pageTemplate(item: Item) {
    const { page, nameOf, actions = [] } = this.#resource;
    const name = nameOf(item);
    return html`<header class="card stack">
        <div class="section-heading buttons spread">
          <h2><bdi>${name}</bdi> ${statusTag(page?.status?.(item))}</h2>
          ${this.#actions.buttons(actions, item, name, true)}
        </div>
        ${name === item.id ? nothing : html`<code class="note">${item.id}</code>`}
        ${page?.figures(item).map(figures)} ${page?.more?.(item)}
        ${this.#told ? html`<p class="note">${this.#told}</p>` : nothing}
      </header>
      <div class=${this.#parts.length > 1 ? "columns" : "stack"}>${this.#parts.map(({ element }) => element)}</div>`;
  }
}

/** A choice takes effect at once; a text when it is complete. */
function chosen(event: Event) {
  if (event.target instanceof HTMLSelectElement) event.target.form?.requestSubmit();
}

/** A section of *Operate* with a list. */
export function sectionOf<Item extends { id: string }, Answer extends Page<Item> = Page<Item>>(
  resource: Resource<Item, Answer>,
) {
  return () => new ResourceList(resource);
}

/** The list, or the page of the object with the id. */
export function partOf<Item extends { id: string }>(resource: Resource<Item>, id: string | undefined): Part {
  return new ResourceList(resource, 2, id || undefined);
}

/** A view of a list, such as `#/batches`, and of each of its objects, such as `#/batches/{id}`. */
export function resourceView<Item extends { id: string }>(view: HTMLElement, resource: Resource<Item>): View {
  return partsOf(view, resource.title, ([id]) => partOf(resource, id));
}
