import { domainOf } from "@responses-edge/page-text";
import type { CitationFilter, CitedText, UrlCitation } from "../../contract/tool-session.ts";

/**
 * Citations in what the model says: `【3†L10-L12】` becomes ` ([domain](url)) ` with an annotation over it, as in
 * openai/gpt-oss (`simple_browser_tool.py`, `normalize_citations`), but while the text streams.
 */

/** A page by its cursor; `lines` is what the model named in it, such as `L10-L12`. */
export type CitationLookup = (cursor: number, lines: string) => { url: string; title: string } | undefined;

/**
 * A longer one is none, in whichever pieces it comes: text is held back no further than this. It also bounds what a
 * model that never closes its bracket can delay.
 */
const MAX_MARK_CHARS = 200;

const MARK = /【([0-9]+)†([^†】]+)(?:†[^†】]+)?】/y;

/** Text that may still become a mark, from its first character to the end of the text so far. */
const BEGINNING = /【[0-9]*(?:†[^†】]*(?:†[^†】]*)?)?$/y;

const NONE: readonly UrlCitation[] = [];

export class BrowserCitationFilter implements CitationFilter {
  readonly #lookup: CitationLookup;
  #pending = "";
  /** Code points before `#uncounted`, which is what has come out since the last citation: counted when one comes. */
  #counted = 0;
  #uncounted = "";

  constructor(lookup: CitationLookup) {
    this.#lookup = lookup;
  }

  get pending(): string {
    return this.#pending;
  }

  push(text: string): CitedText {
    if (this.#pending === "" && !text.includes("【")) {
      this.#uncounted += text;
      return { text, annotations: NONE };
    }
    return this.#take(this.#pending + text, false);
  }

  end(): CitedText {
    return this.#take(this.#pending, true);
  }

  #take(text: string, isEnd: boolean): CitedText {
    let shown = "";
    let annotations: UrlCitation[] | undefined;
    let at = 0;
    const show = (piece: string): void => {
      shown += piece;
      this.#uncounted += piece;
    };
    for (;;) {
      const bracket = text.indexOf("【", at);
      if (bracket === -1) {
        show(text.slice(at));
        at = text.length;
        break;
      }
      show(text.slice(at, bracket));
      at = bracket;
      // Only so much may belong to a mark, so that each bracket costs the same.
      const candidate = text.slice(bracket, bracket + MAX_MARK_CHARS);
      MARK.lastIndex = 0;
      const mark = MARK.exec(candidate);
      if (mark) {
        const [whole, cursor, lines = ""] = mark;
        const page = this.#lookup(Number(cursor), lines);
        if (page) {
          annotations ??= [];
          const start = this.#position();
          show(` ([${domainOf(page.url)}](${page.url})) `);
          const { title, url } = page;
          annotations.push({ type: "url_citation", start_index: start, end_index: this.#position(), title, url });
        } else show(whole);
        at += whole.length;
        continue;
      }
      BEGINNING.lastIndex = 0;
      if (!isEnd && candidate.length < MAX_MARK_CHARS && BEGINNING.test(candidate)) break;
      show("【");
      at++;
    }
    this.#pending = text.slice(at);
    return { text: shown, annotations: annotations ?? NONE };
  }

  /** Code points that have come out so far. */
  #position(): number {
    let points = this.#uncounted.length;
    for (let index = 1; index < this.#uncounted.length; index++) {
      if (isLow(this.#uncounted.charCodeAt(index)) && isHigh(this.#uncounted.charCodeAt(index - 1))) points--;
    }
    this.#counted += points;
    this.#uncounted = "";
    return this.#counted;
  }
}

function isHigh(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}

function isLow(code: number): boolean {
  return code >= 0xdc00 && code <= 0xdfff;
}
