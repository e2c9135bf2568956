/**
 * Porter's stemmer ("An algorithm for suffix stripping", 1980), equal to the one in SQLite's FTS5. A search treats
 * words with one stem as one word.
 */

const CONSONANTS = "[^aeiou][^aeiouy]*";
const VOWELS = "[aeiouy][aeiou]*";
/** The measure of a stem is the number of times a consonant follows a vowel. */
const ABOVE_0 = new RegExp(`^(${CONSONANTS})?${VOWELS}${CONSONANTS}`);
const EXACTLY_1 = new RegExp(`^(${CONSONANTS})?${VOWELS}${CONSONANTS}(${VOWELS})?$`);
const ABOVE_1 = new RegExp(`^(${CONSONANTS})?${VOWELS}${CONSONANTS}${VOWELS}${CONSONANTS}`);
const HAS_VOWEL = new RegExp(`^(${CONSONANTS})?[aeiouy]`);
const ENDS_SHORT = new RegExp(`^${CONSONANTS}[aeiouy][^aeiouwxy]$`);

const STEP_2 = endings(
  "ational ate tional tion enci ence anci ance izer ize bli ble alli al entli ent eli e ousli ous ization ize ation ate ator ate alism al iveness ive fulness ful ousness ous aliti al iviti ive biliti ble logi log",
);
const STEP_3 = endings("icate ic ative - alize al iciti ic ical ic ful - ness -");
const STEP_4 = /^(.+?)(al|ance|ence|er|ic|able|ible|ant|ement|ment|ent|ou|ism|ate|iti|ous|ive|ize|(?<=[st])ion)$/;

/** @param pairs an ending and its replacement; `-` means none */
function endings(pairs: string) {
  const words = pairs.split(" ");
  const list: [string, string][] = [];
  for (let at = 0; at < words.length; at += 2)
    list.push([words[at] ?? "", words[at + 1] === "-" ? "" : (words[at + 1] ?? "")]);
  return list.sort(([one], [other]) => other.length - one.length);
}

function withoutEnding(word: string, list: [string, string][]) {
  const [ending, instead] = list.find(([each]) => word.endsWith(each)) ?? [];
  if (ending === undefined) return word;
  const stem = word.slice(0, -ending.length);
  return ABOVE_0.test(stem) ? stem + instead : word;
}

/** @param lower a word in lower case, without accents */
export function stemOf(lower: string) {
  if (lower.length < 3 || !/^[a-z]+$/.test(lower)) return lower;
  const isYou = lower.startsWith("y");
  let word = isYou ? `Y${lower.slice(1)}` : lower;
  if (/(ss|i)es$/.test(word)) word = word.slice(0, -2);
  else if (/[^s]s$/.test(word)) word = word.slice(0, -1);
  const past = /^(.+)(ed|ing)$/.exec(word)?.[1];
  if (word.endsWith("eed")) {
    if (ABOVE_0.test(word.slice(0, -3))) word = word.slice(0, -1);
  } else if (past !== undefined && HAS_VOWEL.test(past)) {
    word = past;
    if (/(at|bl|iz)$/.test(word) || ENDS_SHORT.test(word)) word += "e";
    else if (/([^aeiouylsz])\1$/.test(word)) word = word.slice(0, -1);
  }
  if (word.endsWith("y") && HAS_VOWEL.test(word.slice(0, -1))) word = `${word.slice(0, -1)}i`;
  word = withoutEnding(withoutEnding(word, STEP_2), STEP_3);
  const stem = STEP_4.exec(word)?.[1];
  if (stem !== undefined && ABOVE_1.test(stem)) word = stem;
  if (word.endsWith("e")) {
    const stem = word.slice(0, -1);
    if (ABOVE_1.test(stem) || (EXACTLY_1.test(stem) && !ENDS_SHORT.test(stem))) word = stem;
  }
  if (word.endsWith("ll") && ABOVE_1.test(word)) word = word.slice(0, -1);
  return isYou ? word.toLowerCase() : word;
}
