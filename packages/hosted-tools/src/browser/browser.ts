import {
  oneLine,
  type PageLimits,
  readPage,
  shortened,
  withoutMarks,
  wrapLines,
} from "@responses-edge/file-text/page-text";
import { parseArguments } from "@responses-edge/responses-api/json";
import type { z } from "zod";
import { DEFAULT_TOPN, findArguments, type OpenArguments, openArguments, searchArguments } from "./definition.ts";
import { display, findResults, searchResults } from "./display.ts";
import type { SearchHit, SearchProvider } from "./search-provider.ts";
import { type BrowserPage, type BrowserState, bounded, EMPTY_STATE, type SearchPage, type WebPage } from "./state.ts";

/**
 * The browser of gpt-oss, built in: search, open and find over a stack of pages. Behaviour and messages follow
 * openai/gpt-oss, `gpt_oss/tools/simple_browser/simple_browser_tool.py`.
 */

export interface BrowserLimits extends PageLimits {
  /** Size of the state as JSON; beyond it page texts are dropped, and fetched again on demand. */
  maxStateBytes: number;
  maxSearchResults: number;
  /**
   * The default length of a display, and its maximum, in approximate tokens. The model may choose the number of lines.
   */
  viewTokens: number;
  maxViewTokens: number;
  /** Displays in one session. */
  maxCursors: number;
}

/** A state of that size fits into one value of SQLite in a Durable Object (2 MB). */
export const DEFAULT_LIMITS: BrowserLimits = {
  maxBytes: 5_000_000,
  maxTextChars: 400_000,
  maxLinkChars: 200_000,
  maxStateBytes: 1_900_000,
  maxSearchResults: 20,
  viewTokens: 1024,
  maxViewTokens: 16_384,
  maxCursors: 1000,
};

export interface BrowserOptions {
  /**
   * Fetches a page for the model. The URL is http(s) and comes from the model or a page: this function must guard
   * against private addresses, endless redirects and slow servers. Its errors' messages are shown.
   */
  fetch: (url: string, signal: AbortSignal | undefined) => Promise<Response>;
  search?: SearchProvider;
  limits?: Partial<BrowserLimits>;
}

/** The `action` of a `web_search_call`. */
export type BrowserAction =
  | { type: "search"; query: string; queries: string[] }
  | { type: "open_page"; url: string | null }
  | { type: "find_in_page"; pattern: string; url: string };

export interface BrowserResult {
  /** The model sees this. */
  text: string;
  /** True if `text` is the reason why there is nothing else. */
  isError: boolean;
  action: BrowserAction;
  /** The results of a search. */
  sources?: SearchHit[];
}

/** An error of the model, or a failure: the message is its answer. */
class UsageError extends Error {}

const VIEW_SOURCE = "view-source:";

/** The number of lines above a match in gpt-oss's browser. */
const LINES_ABOVE_MATCH = 4;

/** A page to show: a loaded one, or one to fetch. */
type Target =
  | { kind: "page"; index: number; loc: number }
  | { kind: "url"; url: string; viewSource: boolean; refresh: boolean };

interface Lines {
  loc: number;
  numLines: number;
}

const FROM_THE_TOP: Lines = { loc: 0, numLines: -1 };

/**
 * A browsing session. Calls come one after another. A call that fails for any reason leaves the session as it was and
 * gives a result with `isError`; only an abort throws, with the signal's reason.
 */
export class Browser {
  readonly #options: BrowserOptions;
  readonly #limits: BrowserLimits;
  #state: BrowserState;

  /** @param state The value of `state` after the last call, for a session that goes on. */
  constructor(state: BrowserState | undefined, options: BrowserOptions) {
    this.#state = state ?? EMPTY_STATE;
    this.#options = options;
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
  }

  /** Plain JSON. It never changes: a successful call replaces it. */
  get state(): BrowserState {
    return this.#state;
  }

  /**
   * Runs a call as the model has written it.
   *
   * @param name `search`, `open` or `find`; another name is the model's error.
   * @param json The arguments; text that is no JSON object is the model's error.
   */
  async call(name: string, json: string, signal?: AbortSignal): Promise<BrowserResult> {
    // gpt-oss's browser treats an empty message as a call without arguments.
    const args = parseArguments(json) ?? null;
    switch (name) {
      case "search":
        return this.search(args, signal);
      case "open":
        return this.open(args, signal);
      case "find":
        return this.find(args, signal);
      default:
        return invalid({ type: "open_page", url: null }, `Unknown function: ${shortened(name, 64)}`);
    }
  }

  /** Searches the web and shows the results: `{query, topn?, source?}`. There is but one source. */
  async search(args: unknown, signal?: AbortSignal): Promise<BrowserResult> {
    const { data, error } = searchArguments.safeParse(args);
    if (!data) return invalid({ type: "search", query: "", queries: [] }, faultIn(error));
    const { query } = data;
    const topn = Math.min(data.topn > 0 ? data.topn : DEFAULT_TOPN, this.#limits.maxSearchResults);
    return this.#answer({ type: "search", query, queries: [query] }, signal, async () => {
      const { page, sources } = await this.#search(query, topn, signal);
      return { text: this.#show([...this.#state.pages, page], this.#state.pages.length, FROM_THE_TOP), sources };
    });
  }

  /**
   * Opens a link or a URL, or shows another part of a page: `{id?, cursor?, loc?, num_lines?, view_source?, source?}`.
   * A URL is always fetched anew; a link to a page that was opened before is not.
   */
  async open(args: unknown = {}, signal?: AbortSignal): Promise<BrowserResult> {
    const { data, error } = openArguments.safeParse(args);
    const action: BrowserAction = { type: "open_page", url: null };
    if (!data) return invalid(action, faultIn(error));
    return this.#answer(action, signal, async () => {
      const target = await this.#target(data, signal);
      action.url = target.kind === "url" ? target.url : this.#pageAt(target.index).url;
      const index = target.kind === "page" ? target.index : this.#indexOf(target);
      const top = target.kind === "page" ? target.loc : 0;
      const lines = { loc: data.loc < 0 ? top : data.loc, numLines: data.num_lines };
      if (index !== undefined) return { text: this.#show(await this.#loaded(index, signal), index, lines) };
      const page = await this.#fetch(action.url, target.kind === "url" && target.viewSource, signal);
      action.url = page.url;
      return { text: this.#show([...this.#state.pages, page], this.#state.pages.length, lines) };
    });
  }

  /** Shows where a page has a text, whatever its case: `{pattern, cursor?}`. */
  async find(args: unknown, signal?: AbortSignal): Promise<BrowserResult> {
    const { data, error } = findArguments.safeParse(args);
    const action: BrowserAction = { type: "find_in_page", pattern: data?.pattern ?? "", url: "" };
    if (!data) return invalid(action, faultIn(error));
    return this.#answer(action, signal, async () => {
      const of = this.#indexAt(data.cursor);
      const page = this.#pageAt(of);
      action.url = page.url;
      if (page.kind !== "web") throw new UsageError("Cannot run `find` on search results page or find results page");
      const pages = await this.#loaded(of, signal);
      const found = findResults(data.pattern, textOf(pages, of));
      return {
        text: this.#show([...pages, { kind: "find", pattern: data.pattern, of, ...found }], pages.length, FROM_THE_TOP),
      };
    });
  }

  /**
   * The page that a citation means.
   *
   * @param cursor The number of any display. That of matches means the page that was searched.
   * @param lines The cited lines, such as `L10-L12`: in search results, the result that stands there.
   * @returns Nothing for a cursor that does not exist, and for search results when no single one is meant.
   */
  citation(cursor: number, lines: string): { url: string; title: string } | undefined {
    const page = this.#state.pages[this.#state.stack[cursor] ?? -1];
    switch (page?.kind) {
      case "web":
        return { url: page.url, title: page.title };
      case "find": {
        const searched = this.#state.pages[page.of];
        return searched && { url: searched.url, title: searched.title };
      }
      case "search":
        return citedResult(page, lines);
      case undefined:
        return undefined;
    }
  }

  async #answer(
    action: BrowserAction,
    signal: AbortSignal | undefined,
    run: () => Promise<Pick<BrowserResult, "text" | "sources">>,
  ): Promise<BrowserResult> {
    try {
      signal?.throwIfAborted();
      const { stack } = this.#state;
      if (stack.length >= this.#limits.maxCursors) throw new UsageError("No more pages can be opened in this session.");
      return { ...(await run()), isError: false, action };
    } catch (error) {
      signal?.throwIfAborted();
      return { text: messageOf(error), isError: true, action };
    }
  }

  async #target({ id, cursor, view_source }: OpenArguments, signal: AbortSignal | undefined): Promise<Target> {
    if (typeof id === "string" && !/^-?\d+$/.test(id.trim())) {
      const isSource = id.startsWith(VIEW_SOURCE);
      const url = absoluteUrl(isSource ? id.slice(VIEW_SOURCE.length) : id);
      return { kind: "url", url, viewSource: isSource || view_source, refresh: true };
    }
    const index = this.#indexAt(cursor);
    const page = this.#pageAt(index);
    const link = Math.trunc(Number(id));
    if (!(link >= 0)) {
      if (view_source && page.kind === "web") return { kind: "url", url: page.url, viewSource: true, refresh: false };
      return { kind: "page", index, loc: 0 };
    }
    if (page.kind === "find") {
      const line = page.matches[link];
      if (line === undefined) throw new UsageError(`Invalid link id \`${link}\`.`);
      return { kind: "page", index: page.of, loc: line > LINES_ABOVE_MATCH ? line - LINES_ABOVE_MATCH : line };
    }
    const links = page.links ?? linksOf(await this.#loaded(index, signal, true), index);
    const url = links[link];
    if (url === undefined) throw new UsageError(`Invalid link id \`${link}\`.`);
    return { kind: "url", url, viewSource: view_source, refresh: false };
  }

  /** The newest page that was opened from there. */
  #indexOf({ url, viewSource, refresh }: Target & { kind: "url" }): number | undefined {
    if (refresh) return undefined;
    const index = this.#state.pages.findLastIndex(
      (page) => page.kind === "web" && page.url === url && page.viewSource === viewSource,
    );
    return index === -1 ? undefined : index;
  }

  #indexAt(cursor: number): number {
    const { stack } = this.#state;
    const last = stack.length - 1;
    if (last < 0) throw new UsageError("No pages to access!");
    const index = stack[cursor < 0 ? last : cursor];
    if (index === undefined) {
      throw new UsageError(`Cursor \`${cursor}\` is out of range. Available cursor indices: [0 - ${last}].`);
    }
    return index;
  }

  #pageAt(index: number): BrowserPage {
    const page = this.#state.pages[index];
    if (!page) throw new UsageError("No pages to access!");
    return page;
  }

  /** The pages, with the text of one of them there again if it had been dropped (or its links, if these are needed). */
  async #loaded(index: number, signal: AbortSignal | undefined, needsLinks = false): Promise<BrowserPage[]> {
    const page = this.#pageAt(index);
    if (page.text !== undefined && !(needsLinks && page.kind !== "find" && !page.links)) return this.#state.pages;
    switch (page.kind) {
      case "web":
        return this.#state.pages.with(index, await this.#fetch(page.url, page.viewSource, signal));
      case "search":
        return this.#state.pages.with(index, (await this.#search(page.query, page.topn, signal)).page);
      case "find": {
        const pages = await this.#loaded(page.of, signal);
        return pages.with(index, { ...page, ...findResults(page.pattern, textOf(pages, page.of)) });
      }
    }
  }

  async #fetch(url: string, viewSource: boolean, signal: AbortSignal | undefined): Promise<WebPage> {
    try {
      signal?.throwIfAborted();
      const response = await this.#options.fetch(url, signal);
      return { kind: "web", viewSource, ...(await readPage(response, url, this.#limits, viewSource)) };
    } catch (error) {
      throw new UsageError(`Error fetching URL \`${shortened(url)}\`: ${messageOf(error)}`);
    }
  }

  async #search(
    query: string,
    topn: number,
    signal: AbortSignal | undefined,
  ): Promise<{ page: SearchPage; sources: SearchHit[] }> {
    try {
      if (!this.#options.search) throw new UsageError("no search engine is configured");
      const hits = await this.#options.search.search(query, { topn, signal });
      const title = oneLine(withoutMarks(query));
      return {
        page: { kind: "search", query, topn, url: "", title, ...searchResults(hits) },
        sources: hits,
      };
    } catch (error) {
      throw new UsageError(`Error during search for \`${shortened(query)}\`: ${messageOf(error)}`);
    }
  }

  /** Displays a page under a new cursor, and only then takes it into the session. */
  #show(pages: BrowserPage[], index: number, { loc, numLines }: Lines): string {
    const { stack } = this.#state;
    const { url, title, text } = textOf(pages, index);
    const { viewTokens, maxViewTokens } = this.#limits;
    const shown = { cursor: stack.length, url, title, lines: wrapLines(text) };
    const result = display(shown, { loc, numLines, viewTokens, maxViewTokens });
    this.#state = bounded({ pages, stack: [...stack, index] }, this.#limits.maxStateBytes);
    return result;
  }
}

function textOf(pages: BrowserPage[], index: number): { url: string; title: string; text: string } {
  const page = pages[index];
  return { url: page?.url ?? "", title: page?.title ?? "", text: page?.text ?? "" };
}

function linksOf(pages: BrowserPage[], index: number): string[] {
  const page = pages[index];
  return (page?.kind !== "find" && page?.links) || [];
}

/** The result whose lines hold the one that is cited. */
function citedResult({ text, links }: SearchPage, cited: string): { url: string; title: string } | undefined {
  const line = /^L(\d+)/.exec(cited)?.[1];
  if (line === undefined || text === undefined) return undefined;
  const result = wrapLines(text)
    .slice(0, Number(line) + 1)
    .findLast((shown) => shown.startsWith("  * 【"));
  const [, id = "", title = ""] = /^ {2}\* 【(\d+)†([^†】]*)/.exec(result ?? "") ?? [];
  const url = links?.[Number(id || -1)];
  return url === undefined ? undefined : { url, title: title.trim() };
}

function absoluteUrl(text: string): string {
  // Models often omit the scheme.
  for (const candidate of [text.trim(), `https://${text.trim()}`]) {
    if (!URL.canParse(candidate)) continue;
    const { protocol, href } = new URL(candidate);
    if (protocol === "https:" || protocol === "http:") return href;
    if (/^[a-z][a-z\d+.-]*:(?!\d)/i.test(candidate)) break;
  }
  throw new UsageError(`Error fetching URL \`${shortened(text)}\`: only http and https URLs can be opened`);
}

/** Why arguments are invalid: gpt-oss's words, and the first field at fault. */
function faultIn(error: z.ZodError): string {
  const [field] = error.issues[0]?.path ?? [];
  return field === undefined ? "Invalid function arguments" : `Invalid function arguments: '${String(field)}'`;
}

function invalid(action: BrowserAction, error: string): BrowserResult {
  return { text: JSON.stringify({ error }), isError: true, action };
}

function messageOf(error: unknown): string {
  return shortened(error instanceof Error ? error.message : String(error));
}
