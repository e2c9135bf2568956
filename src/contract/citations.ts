/** A citation of a page, as an annotation of OpenAI's `output_text`. */
export interface UrlCitation {
  type: "url_citation";
  /** The place of the replacement in the whole text, in Unicode code points: OpenAI counts as Python does, not in UTF-16 units. */
  start_index: number;
  end_index: number;
  title: string;
  url: string;
}

export interface CitedText {
  text: string;
  annotations: readonly UrlCitation[];
}

/** Replaces citations in one content part. How the text is cut into pieces makes no difference to what comes out. */
export interface CitationFilter {
  /** The text that was said and cannot be shown yet. */
  readonly pending: string;
  /** Takes the next piece; gives what can be shown by now, and the citations in it. */
  push(text: string): CitedText;
  /** Gives what was pending: nothing more comes. */
  end(): CitedText;
}
