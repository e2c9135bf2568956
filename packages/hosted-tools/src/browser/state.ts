/** A browser's memory between calls, as plain JSON: a durable run stores it and continues with it. */

export interface BrowserState {
  pages: BrowserPage[];
  /** Pages by cursor: every display has a cursor of its own, also a repeated one. */
  stack: number[];
}

/** A page, with its text unless it was dropped to save memory. */
export type BrowserPage = WebPage | SearchPage | FindPage;

interface PageBase {
  /** The address in the display; `""` for search results, as in gpt-oss's browser. */
  url: string;
  title: string;
  /** Absent once dropped; it is then fetched, searched or found again. */
  text?: string;
}

export interface WebPage extends PageBase {
  kind: "web";
  viewSource: boolean;
  /** Targets of links by their id; absent once dropped. */
  links?: string[];
}

export interface SearchPage extends PageBase {
  kind: "search";
  query: string;
  topn: number;
  links?: string[];
}

export interface FindPage extends PageBase {
  kind: "find";
  pattern: string;
  /** Index of the searched page. */
  of: number;
  /** Lines of the matches by their id. */
  matches: number[];
}

export const EMPTY_STATE: BrowserState = { pages: [], stack: [] };

/**
 * The state with texts dropped, oldest first, until its JSON takes at most `maxBytes` in UTF-8 or nothing is left to
 * drop: first texts, then links. The latest displayed page stays complete.
 */
export function bounded(state: BrowserState, maxBytes: number): BrowserState {
  let excess = state.pages.reduce((total, page) => total + pageBytes(page), 8 * state.stack.length) - maxBytes;
  if (excess <= 0) return state;
  const pages = [...state.pages];
  const shown = state.stack.at(-1);
  for (const drop of [withoutText, withoutLinks]) {
    for (let index = 0; index < pages.length && excess > 0; index++) {
      const page = pages[index];
      if (!page || index === shown) continue;
      const smaller = drop(page);
      excess -= pageBytes(page) - pageBytes(smaller);
      pages[index] = smaller;
    }
  }
  return { pages, stack: state.stack };
}

function withoutText(page: BrowserPage): BrowserPage {
  return { ...page, text: undefined };
}

function withoutLinks(page: BrowserPage): BrowserPage {
  return page.kind === "find" ? page : { ...page, text: undefined, links: undefined };
}

/** Pages never change, so each is measured once. */
const measured = new WeakMap<BrowserPage, number>();

function pageBytes(page: BrowserPage): number {
  let bytes = measured.get(page);
  if (bytes === undefined) {
    bytes = new TextEncoder().encode(JSON.stringify(page)).byteLength;
    measured.set(page, bytes);
  }
  return bytes;
}
