import { html, nothing, render } from "lit-html";
import { type Action, Actions, type Outcome } from "./actions.ts";
import { callJson } from "./api.ts";
import { type Column, objectsTable } from "./cards-table.ts";
import { faultNotice, messageWithField } from "./dialogs.ts";
import { type Form, fieldsTemplate, valuesIn } from "./fields.ts";
import { iconButton } from "./icons.ts";
import { statusTag } from "./item-view.ts";
import { figures, type Part, partsOf } from "./list-and-one.ts";
import { PagedList } from "./paged-list.ts";
import { Refresher } from "./refresher.ts";
import type { View } from "./view.ts";

/**
 * Lists of the API's objects, and a page for each of them. A description (`Resource`) says how a kind of object is listed,
 * filtered, shown, made and changed; `ResourceList` and `ResourcePage` show it. A list by itself:
 *
 *     const list = new ResourceList(resource);
 *     element.append(list.element);
 *     list.show(query); // each time it is shown; `query` is the query of the address, which has the filters
 *     list.hide();
 *
 * `sectionOf(resource)` makes a section of *Operate* of it, `resourceView(view, resource)` a view with the list and the pages.
 */
export interface Resource<Item extends { id: string }> {
  /** The heading of the list. */
  title: string;
  /** The path of the API, such as `/v1/batches`, or a function that loads a list without pages. */
  source: string | (() => Promise<Item[]>);
  /** The address of the list, such as `#/batches`. The page of an object is below it. */
  address?: string;
  nameOf: (item: Item) => string;
  columns: readonly Column<Item>[];
  /** The text of an empty list; of one that is filtered, where it is another. */
  none: string;
  noneFiltered?: string;
  /** Fields of the address's query. */
  filters?: Form;
  /** The API's query for the address's query. Default: the same. */
  queryOf?: (filters: Record<string, string>) => Record<string, string>;
  /** A template above the table. */
  note?: (items: readonly Item[]) => unknown;
  actions?: readonly Action<Item>[];
  /** Actions of the list, such as one that makes an object. */
  listActions?: readonly Action<undefined, Item>[];
  /** Makes an element between the heading and the list. `show`: called each time the list is shown. */
  above?: (list: ResourceList<Item>) => { element?: HTMLElement; show?: (query: URLSearchParams) => void };
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

export class ResourceList<Item extends { id: string }> {
  element = document.createElement("section");
  list: PagedList<Item>;
  #resource;
  #query = new URLSearchParams();
  #refresher;
  #actions;
  #above;
  #level;

  /** @param level of the heading */
  constructor(resource: Resource<Item>, level: 2 | 3 = 2) {
    this.element.className = "stack";
    this.#resource = resource;
    this.#level = level;
    this.list = new PagedList(resource.source, () => this.draw());
    this.#refresher = new Refresher(async () => {
      await this.list.refresh();
      return resource.isLive || this.list.items?.some((item) => resource.isChanging?.(item)) === true;
    }, resource.everyMs ?? EVERY_MS);
    this.#actions = new Actions<Item>(
      (outcome, id) => this.#take(outcome, id),
      (fault) => this.say(fault),
    );
    this.#above = resource.above?.(this);
  }

  /** Loads the list; again while one of its objects changes. */
  show(query = new URLSearchParams()) {
    this.#above?.show?.(query);
    if (this.#resource.filters && String(query) !== String(this.#query)) {
      const given = Object.fromEntries(query);
      this.list.filter = this.#resource.queryOf?.(given) ?? given;
      this.#query = query;
    }
    this.draw();
    this.#refresher.start();
  }

  hide() {
    this.#refresher.stop();
  }

  /** Does something with the list as if its button was pressed. */
  do(action: Action<undefined, Item>) {
    void this.#actions.do(action, undefined, "");
  }

  /** Loads the list now. */
  refresh = () => void this.#refresher.now();

  #take({ item, isGone }: Outcome<Item>, id: string) {
    if (item) this.list.put(item);
    if (isGone) this.list.remove(id);
    this.draw();
    if (!item && !isGone) this.refresh();
  }

  /** Shows a fault; with an empty text, none. */
  say(fault: string) {
    this.list.fault = fault;
    this.draw();
  }

  #filter = (event: SubmitEvent) => {
    event.preventDefault();
    const { filters = [], address = "" } = this.#resource;
    const query = String(new URLSearchParams(valuesIn(filters, new FormData(event.currentTarget as HTMLFormElement))));
    location.hash = query === "" ? address : `${address}?${query}`;
  };

  #filtersTemplate(filters: Form) {
    const isOfChoices = filters.every((each) => "kind" in each && each.kind === "choice");
    const { title, address = "" } = this.#resource;
    const form = html`<form class="filters" role="search" aria-label=${title} @submit=${this.#filter} @change=${chosen}>
      ${fieldsTemplate(filters, Object.fromEntries(this.#query), "filter")}
      ${isOfChoices ? nothing : html`<button type="submit">Show</button>`}
      ${!isOfChoices && this.#query.size > 0 ? html`<a class="button" href=${address}>Clear</a>` : nothing}
    </form>`;
    if (filters.length <= MAX_UNFOLDED) return form;
    const isOpen = this.#query.size > 0 || matchMedia("(min-width: 641px)").matches;
    return html`<details class="many-filters" ?open=${isOpen}><summary>Filters</summary>${form}</details>`;
  }

  draw() {
    const { title, filters, note, columns, actions, nameOf, listActions = [] } = this.#resource;
    const { none, noneFiltered = none } = this.#resource;
    const buttons = actions && ((item: Item) => this.#actions.buttons(actions, item, nameOf(item)));
    render(
      html`
        <div class="section-heading buttons spread">
          ${this.#level === 2 ? html`<h2>${title}</h2>` : html`<h3>${title}</h3>`}
          <div class="buttons">
            ${listActions.map((action) => this.#actions.button(action, undefined, ""))}
            ${iconButton("again", "Refresh", this.refresh)}
          </div>
        </div>
        ${faultNotice(this.list.fault)}
        ${this.#above?.element ?? nothing}
        ${filters ? this.#filtersTemplate(filters) : nothing}
        ${this.list.items && note ? note(this.list.items) : nothing}
        ${this.list.rows(this.#query.size > 0 ? noneFiltered : none, (items) => objectsTable(title, columns, items, buttons))}
      `,
      this.element,
    );
  }
}

/** A choice takes effect at once; a text when it is complete. */
function chosen(event: Event) {
  if (event.target instanceof HTMLSelectElement) event.target.form?.requestSubmit();
}

/** The page of one object. */
class ResourcePage<Item extends { id: string }> implements Part {
  element = document.createElement("div");
  #resource;
  #id;
  #item: Item | undefined;
  #fault = { load: "", action: "" };
  /** The result of the last action. */
  #told = "";
  #parts: PagePart<Item>[];
  #refresher;
  #actions;

  constructor(resource: Resource<Item>, id: string) {
    this.element.className = "stack";
    this.#resource = resource;
    this.#id = id;
    this.#parts = resource.page?.parts?.(id, { refresh: () => void this.#refresher.now() }) ?? [];
    this.#refresher = new Refresher(() => this.#load(), resource.everyMs ?? EVERY_MS);
    this.#actions = new Actions<Item>(
      (outcome) => this.#take(outcome),
      (fault) => {
        this.#fault.action = fault;
        this.#draw();
      },
    );
  }

  show() {
    this.#draw();
    this.#refresher.start();
    for (const part of this.#parts) part.show?.();
  }

  hide() {
    this.#refresher.stop();
    for (const part of this.#parts) part.hide?.();
  }

  async #load() {
    try {
      const { source, load = (id: string) => callJson(`${source}/${encodeURIComponent(id)}`) } = this.#resource;
      this.#set(await load(this.#id));
      this.#fault.load = "";
    } catch (error) {
      this.#fault.load = messageWithField(error);
    }
    this.#draw();
    // A load that failed tells nothing about the object.
    return this.#fault.load !== "" || (this.#item !== undefined && this.#resource.isChanging?.(this.#item) === true);
  }

  #set(item: Item) {
    this.#item = item;
    for (const part of this.#parts) part.update?.(item);
  }

  #take({ item, isGone, told = "" }: Outcome<Item>) {
    this.#told = told;
    if (isGone) location.hash = this.#resource.address ?? "";
    if (item) this.#set(item);
    this.#draw();
    if (!isGone) void this.#refresher.now();
  }

  #draw() {
    const { title, address, page, nameOf, actions = [] } = this.#resource;
    const item = this.#item;
    render(
      html`
        <p><a href=${address ?? ""}>All ${title.toLowerCase()}</a></p>
        ${faultNotice(this.#fault.load)} ${faultNotice(this.#fault.action)}
        ${
          item && page
            ? html`<header class="card stack">
                  <div class="section-heading buttons spread">
                    <h2><bdi>${nameOf(item)}</bdi> ${statusTag(page.status?.(item))}</h2>
                    ${this.#actions.buttons(actions, item, nameOf(item), true)}
                  </div>
                  ${nameOf(item) === item.id ? nothing : html`<code class="note">${item.id}</code>`}
                  ${page.figures(item).map(figures)} ${page.more?.(item) ?? nothing}
                  ${this.#told ? html`<p class="note">${this.#told}</p>` : nothing}
                </header>
                <div class=${this.#parts.length > 1 ? "columns" : "stack"}>${this.#parts.map(({ element }) => element)}</div>`
            : this.#fault.load
              ? nothing
              : html`<p class="note">Loading…</p>`
        }
      `,
      this.element,
    );
  }
}

/** A section of *Operate* with a list. */
export function sectionOf<Item extends { id: string }>(resource: Resource<Item>) {
  return () => new ResourceList(resource);
}

/** The list, or the page of the object with the id. */
export function partOf<Item extends { id: string }>(resource: Resource<Item>, id: string | undefined): Part {
  return id ? new ResourcePage(resource, id) : new ResourceList(resource);
}

/** A view of a list, such as `#/batches`, and of each of its objects, such as `#/batches/{id}`. */
export function resourceView<Item extends { id: string }>(view: HTMLElement, resource: Resource<Item>): View {
  return partsOf(view, resource.title, ([id]) => partOf(resource, id));
}
