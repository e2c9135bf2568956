import { domainOf } from "@responses-edge/file-text/page-text";
import type { Citation, CitationFilter, CitedText } from "@responses-edge/turn/contract/tool-session";

/**
 * The marks by which models cite the results of tools, such as gpt-oss's `【3†L10-L12】`. While the text streams, each
 * mark becomes an annotation, and a text that the tool chooses.
 */

/** A position in a text: in Unicode code points, and in UTF-16 units. */
export interface TextPlace {
  points: number;
  units: number;
}

/** A citation: the text that replaces its mark, and its annotation, from its `start` to its `end`. */
export interface Cited {
  text: string;
  annotation(start: TextPlace, end: TextPlace): Citation;
}

/**
 * The citation of a mark; undefined for a mark that cites nothing, which stays in the text. `source` is the part before
 * the first dagger: a number, or two with a colon. `part` is the part after it, such as `L10-L12`.
 */
export type Cite = (source: string, part: string) => Cited | undefined;

/**
 * The longest mark: no more text than this is held back, however it is split. It also bounds the delay by a model that
 * never closes its bracket.
 */
const MAX_MARK_CHARS = 200;

const MARK = /【([0-9]+(?::[0-9]+)?)†([^†】]+)(?:†[^†】]+)?】/y;

/** Text that may still become a mark, from its first character to the end of the text so far. */
const BEGINNING = /【(?:[0-9]+(?::[0-9]*)?)?(?:†[^†】]*(?:†[^†】]*)?)?$/y;

const NONE: readonly Citation[] = [];

export class CitationMarks implements CitationFilter {
  readonly #cite: Cite;
  #pending = "";
  /** The position before `#uncounted`, the text since the last citation. It is counted at the next citation. */
  #counted: TextPlace = { points: 0, units: 0 };
  #uncounted = "";

  constructor(cite: Cite) {
    this.#cite = cite;
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
    let annotations: Citation[] | undefined;
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
      // Looks only at the length of a mark, so that each bracket costs the same.
      const candidate = text.slice(bracket, bracket + MAX_MARK_CHARS);
      MARK.lastIndex = 0;
      const mark = MARK.exec(candidate);
      if (mark) {
        const [whole, source = "", part = ""] = mark;
        const cited = this.#cite(source, part);
        if (cited) {
          annotations ??= [];
          const start = this.#place();
          show(cited.text);
          annotations.push(cited.annotation(start, this.#place()));
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

  /** The position after all text so far. */
  #place(): TextPlace {
    const { length } = this.#uncounted;
    let points = length;
    for (let index = 1; index < length; index++) {
      if (isLow(this.#uncounted.charCodeAt(index)) && isHigh(this.#uncounted.charCodeAt(index - 1))) points--;
    }
    this.#counted = { points: this.#counted.points + points, units: this.#counted.units + length };
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

/** A citation as openai/gpt-oss writes it (`simple_browser_tool.py`, `normalize_citations`): ` ([domain](url)) `. */
export function asLink({ url, title }: { url: string; title: string }): Cited {
  return {
    text: ` ([${domainOf(url)}](${url})) `,
    annotation: ({ points: start_index }, { points: end_index }) => ({
      type: "url_citation",
      ...{ start_index, end_index, title, url },
    }),
  };
}
