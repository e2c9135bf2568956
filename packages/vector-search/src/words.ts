import { stemOf } from "./stem.ts";

/**
 * Words as FTS5 indexes and finds them. Text of languages without spaces between words becomes pairs of neighbouring
 * characters (bigrams): FTS5's own `trigram` finds no word of two characters, as most Chinese ones are.
 */

/**
 * The tokenizer of the table. Marks belong to words: without their vowel signs words of Indic languages would break
 * apart.
 */
export const TOKENIZER = "porter unicode61 categories 'L* N* Co Mn Mc'";

const UNSPACED = String.raw`\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\u30fc\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}`;
const UNSPACED_RUN = new RegExp(`[${UNSPACED}]+`, "gu");
const HAS_UNSPACED = new RegExp(`[${UNSPACED}]`, "u");

/** Splits text into words as the search does. */
const WORD = /[\p{L}\p{N}\p{Co}\p{Mn}\p{Mc}]+/gu;

/** A text as it is to be indexed. */
export function indexedText(text: string): string {
  const normal = text.normalize("NFC");
  if (!HAS_UNSPACED.test(normal)) return normal;
  return normal.replace(UNSPACED_RUN, (run) => ` ${pairsIn(run).join(" ")} `);
}

function pairsIn(run: string): string[] {
  const characters = [...run];
  if (characters.length === 1) return characters;
  return characters.slice(1).map((character, index) => `${characters[index]}${character}`);
}

/** As much of a query is read, in UTF-16 units, and as many words of it. */
const MAX_QUERY_LENGTH = 16_384;
const MAX_TERMS = 48;

/**
 * The expressions of FTS5 that find a query's words, each in quotes: nothing that a user writes is syntax. Words that are in
 * nearly every English text are left out where there are others.
 */
export function termsOf(query: string): string[] {
  const words = query.slice(0, MAX_QUERY_LENGTH).toWellFormed().normalize("NFC").toLowerCase().match(WORD) ?? [];
  const terms = new Set<string>();
  const common = new Set<string>();
  for (const word of words) {
    for (const spaced of word.replace(UNSPACED_RUN, (run) => ` ${run} `).split(" ")) {
      if (spaced === "") continue;
      if (!HAS_UNSPACED.test(spaced)) (STOP_WORDS.has(spaced) ? common : terms).add(`"${spaced}"`);
      else for (const pair of pairsIn(spaced)) terms.add([...pair].length === 1 ? `"${pair}" *` : `"${pair}"`);
    }
    if (terms.size >= MAX_TERMS) break;
  }
  return [...(terms.size > 0 ? terms : common)].slice(0, MAX_TERMS);
}

/** A word in the form that FTS5 compares: its stem, in lower case and without accents. */
function comparedForm(word: string): string {
  const plain = word.normalize("NFD").replaceAll(/[\u0300-\u036f]/g, "");
  return stemOf(plain.toLowerCase());
}

/** The words of a text, in the form that the search compares. */
export function comparedWords(text: string): Set<string> {
  return new Set((text.match(WORD) ?? []).map(comparedForm));
}

/**
 * Splits a text at the words of a query that it contains, in order; together the parts are the text. `isFound`: it is such a word.
 * @param words of a search's explanation: those of unspaced languages are pairs of characters, which may overlap in the text
 */
export function partsByWords(text: string, words: readonly string[]): { text: string; isFound: boolean }[] {
  const isFound = new Uint8Array(text.length);
  const spaced = new Set(words.filter((word) => !HAS_UNSPACED.test(word)).map(comparedForm));
  for (const { 0: word, index } of text.matchAll(WORD)) {
    if (spaced.has(comparedForm(word))) isFound.fill(1, index, index + word.length);
  }
  for (const word of words.filter((each) => HAS_UNSPACED.test(each))) {
    for (let at = text.indexOf(word); at !== -1; at = text.indexOf(word, at + 1)) isFound.fill(1, at, at + word.length);
  }
  const parts = [];
  for (let at = 0, end = 0; at < text.length; at = end) {
    const next = isFound.indexOf(isFound[at] ? 0 : 1, at);
    end = next === -1 ? text.length : next;
    parts.push({ text: text.slice(at, end), isFound: isFound[at] === 1 });
  }
  return parts;
}

const STOP_WORDS = new Set(
  `a about above after again against all am an and any are as at be because been before being below between both but by can could
  did do does doing don down during each few for from further had has have having he her here hers herself him himself his how i
  if in into is it its itself just me more most my myself no nor not now of off on once only or other our ours ourselves out over
  own same she should so some such t than that the their theirs them themselves then there these they this those through to too
  under until up very was we were what when where which while who whom why will with would you your yours yourself yourselves`.split(
    /\s+/,
  ),
);
