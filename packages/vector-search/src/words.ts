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

const STOP_WORDS = new Set(
  `a about above after again against all am an and any are as at be because been before being below between both but by can could
  did do does doing don down during each few for from further had has have having he her here hers herself him himself his how i
  if in into is it its itself just me more most my myself no nor not now of off on once only or other our ours ourselves out over
  own same she should so some such t than that the their theirs them themselves then there these they this those through to too
  under until up very was we were what when where which while who whom why will with would you your yours yourself yourselves`.split(
    /\s+/,
  ),
);
