/** Finds texts by words: Okapi BM25, as OpenAI's own search for tools. */

/** How soon more of a word counts no more, and how much the length of a text counts. */
const SATURATION = 1.2;
const LENGTH_WEIGHT = 0.75;

/** The beginning of a text is what it is about. */
const MAX_TEXT_LENGTH = 4_000;

interface Entry<Value> {
  value: Value;
  counts: ReadonlyMap<string, number>;
  length: number;
}

export class Ranking<Value> {
  readonly #entries: Entry<Value>[];
  readonly #meanLength: number;
  /** In how many texts a word is. */
  readonly #spread = new Map<string, number>();

  constructor(entries: readonly { value: Value; text: string }[]) {
    this.#entries = entries.map(({ value, text }) => {
      const words = wordsOf(text);
      const counts = new Map<string, number>();
      for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
      for (const word of counts.keys()) this.#spread.set(word, (this.#spread.get(word) ?? 0) + 1);
      return { value, counts, length: words.length };
    });
    const total = this.#entries.reduce((sum, { length }) => sum + length, 0);
    this.#meanLength = Math.max(1, total / Math.max(1, this.#entries.length));
  }

  /** At most `limit` values whose texts have words of the query, best first. */
  search(query: string, limit: number): Value[] {
    const words = [...new Set(wordsOf(query))];
    return this.#entries
      .map((entry) => ({ value: entry.value, score: this.#score(entry, words) }))
      .filter(({ score }) => score > 0)
      .sort((a, b) => b.score - a.score)
      .slice(0, limit)
      .map(({ value }) => value);
  }

  #score({ counts, length }: Entry<Value>, words: readonly string[]): number {
    const norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * (length / this.#meanLength));
    let score = 0;
    for (const word of words) {
      const count = counts.get(word);
      if (count === undefined) continue;
      const spread = this.#spread.get(word) ?? 0;
      const rarity = Math.log(1 + (this.#entries.length - spread + 0.5) / (spread + 0.5));
      score += (rarity * count * (SATURATION + 1)) / (count + norm);
    }
    return score;
  }
}

/** The words of a text, those that names are put together from (`listEvents`, `list_events`) one by one. */
function wordsOf(text: string): string[] {
  const apart = text.slice(0, MAX_TEXT_LENGTH).replaceAll(/(\p{Ll})(\p{Lu})/gu, "$1 $2");
  return apart.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
}
