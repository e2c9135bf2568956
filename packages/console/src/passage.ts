import { html, nothing } from "lit-html";
import type { VectorStoreSearchResults } from "../api-types.d.ts";
import { stemOf } from "./stem.ts";

/** Passages of files: the text of a chunk, with the words that the search matched. */

/** A chunk that a search has found, with the explanation that it was asked for. */
type Result = VectorStoreSearchResults["data"][number];
export type Found = Result & { explanation: NonNullable<Result["explanation"]> };

/** Splits text into words as the search does. */
const WORD = /[\p{L}\p{N}\p{Co}\p{Mn}\p{Mc}]+/gu;

/** Scripts without spaces between words: the search takes every two characters as a word. */
const IS_UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\u30fc\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}]/u;

/** The form of a word that the search compares. */
function normalOf(word: string) {
  return stemOf(
    word
      .normalize("NFD")
      .replaceAll(/[\u0300-\u036f]/g, "")
      .toLowerCase(),
  );
}

/** The compared forms of a text's words. */
export function wordsOf(text: string): Set<string> {
  return new Set((text.match(WORD) ?? []).map(normalOf));
}

/** The positions of words in a text, in order. None overlaps another. */
export function placesOf(text: string, words: readonly string[]): [start: number, end: number][] {
  const spaced = new Set(words.filter((word) => !IS_UNSPACED.test(word)).map(normalOf));
  const found: [number, number][] = [];
  for (const { 0: word, index } of text.matchAll(WORD)) {
    if (spaced.has(normalOf(word))) found.push([index, index + word.length]);
  }
  for (const word of words.filter((each) => IS_UNSPACED.test(each))) {
    for (let at = text.indexOf(word); at !== -1; at = text.indexOf(word, at + 1)) found.push([at, at + word.length]);
  }
  found.sort(([one], [other]) => one - other);
  const joined: [number, number][] = [];
  for (const [start, end] of found) {
    const last = joined.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else joined.push([start, end]);
  }
  return joined;
}

/** A text with the given words marked. */
export function passageText(text: string, words: readonly string[]) {
  const parts = [];
  let at = 0;
  for (const [start, end] of placesOf(text, words)) {
    parts.push(text.slice(at, start), html`<mark>${text.slice(start, end)}</mark>`);
    at = end;
  }
  parts.push(text.slice(at));
  return html`<pre class="passage-text" dir="auto" tabindex="0" role="group" aria-label="Text">${parts}</pre>`;
}

export function pagesTag(page: number | null | undefined, last: number | null | undefined) {
  if (page == null) return nothing;
  return html`<span class="tag">${last == null || last === page ? `page ${page}` : `pages ${page}–${last}`}</span>`;
}
