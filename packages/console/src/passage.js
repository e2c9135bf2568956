import { html, nothing } from "lit-html";
import { stemOf } from "./stem.js";

/** Passages of files: the text of a chunk, with the words that the search matched. */

/** Splits text into words as the search does. */
const WORD = /[\p{L}\p{N}\p{Co}\p{Mn}\p{Mc}]+/gu;

/** Scripts without spaces between words: the search takes every two characters as a word. */
const IS_UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\u30fc\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}]/u;

/** The form of a word that the search compares. @param {string} word */
function normalOf(word) {
  return stemOf(
    word
      .normalize("NFD")
      .replaceAll(/[\u0300-\u036f]/g, "")
      .toLowerCase(),
  );
}

/** The compared forms of a text's words. @param {string} text @returns {Set<string>} */
export function wordsOf(text) {
  return new Set((text.match(WORD) ?? []).map(normalOf));
}

/**
 * The positions of words in a text, in order. None overlaps another.
 * @param {string} text
 * @param {readonly string[]} words
 * @returns {[start: number, end: number][]}
 */
export function placesOf(text, words) {
  const spaced = new Set(words.filter((word) => !IS_UNSPACED.test(word)).map(normalOf));
  /** @type {[number, number][]} */
  const found = [];
  for (const { 0: word, index } of text.matchAll(WORD)) {
    if (spaced.has(normalOf(word))) found.push([index, index + word.length]);
  }
  for (const word of words.filter((each) => IS_UNSPACED.test(each))) {
    for (let at = text.indexOf(word); at !== -1; at = text.indexOf(word, at + 1)) found.push([at, at + word.length]);
  }
  found.sort(([one], [other]) => one - other);
  /** @type {[number, number][]} */
  const joined = [];
  for (const [start, end] of found) {
    const last = joined.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else joined.push([start, end]);
  }
  return joined;
}

/** A text with the given words marked. @param {string} text @param {readonly string[]} words */
export function passageText(text, words) {
  const parts = [];
  let at = 0;
  for (const [start, end] of placesOf(text, words)) {
    parts.push(text.slice(at, start), html`<mark>${text.slice(start, end)}</mark>`);
    at = end;
  }
  parts.push(text.slice(at));
  return html`<pre class="passage-text" dir="auto" tabindex="0" role="group" aria-label="Text">${parts}</pre>`;
}

/** @param {number | null | undefined} page @param {number | null | undefined} last */
export function pagesTag(page, last) {
  if (page == null) return nothing;
  return html`<span class="tag">${last == null || last === page ? `page ${page}` : `pages ${page}–${last}`}</span>`;
}
