import { partsByWords } from "@responses-edge/vector-search/words";
import { html, nothing } from "lit-html";
import type { VectorStoreSearchResults } from "../api-types.d.ts";

/** Passages of files: the text of a chunk, with the words that the search matched. */

/** A chunk that a search has found, with the explanation that it was asked for. */
type Result = VectorStoreSearchResults["data"][number];
export type Found = Result & { explanation: NonNullable<Result["explanation"]> };

/** A text with the given words marked. */
export function passageText(text: string, words: readonly string[]) {
  const parts = partsByWords(text, words).map((part) => (part.isFound ? html`<mark>${part.text}</mark>` : part.text));
  return html`<pre class="passage-text max-h-72 overflow-y-auto" dir="auto" tabindex="0" role="group" aria-label="Text">${parts}</pre>`;
}

export function pagesTag(page: number | null | undefined, last: number | null | undefined) {
  if (page == null) return nothing;
  return html`<span class="tag">${last == null || last === page ? `page ${page}` : `pages ${page}–${last}`}</span>`;
}
