/**
 * Cuts a text into overlapping chunks of a number of tokens, if possible at the end of a paragraph, else of a sentence,
 * a line or a word. It reads page by page, and holds little more than one chunk.
 */

/** The tokens of texts: `@responses-edge/harmony` has such a tokenizer. */
export interface ChunkTokenizer {
  /** The tokens of a text, part by part. */
  slices(text: string): Iterable<readonly number[]>;
  /** The UTF-8 bytes of a token. */
  bytes(id: number): Uint8Array;
}

/** In tokens. */
export interface ChunkSizes {
  max: number;
  /** At most half of `max`. */
  overlap: number;
}

export interface Chunk {
  text: string;
  tokens: number;
  /** The pages of its beginning and end; null without pages. */
  page: number | null;
  lastPage: number | null;
}

/** The minimum part of a chunk's tokens; a better border is searched in the rest. */
const LEAST = 0.7;

/** The ends of sentences: a mark, with closing quotes and brackets after it, and a space unless the script has none. */
const SENTENCE_END = /[.!?…]["'”’)\]]*(?=\s)|[。！？]["'”’」』）]*/g;
const PARAGRAPH_END = /\n[^\S\n]*\n\s*/g;
const LINE_END = /\n/g;
const WORD_END = /\S(?=\s)/g;

export class Chunker {
  readonly #tokenizer: ChunkTokenizer;
  readonly #sizes: ChunkSizes;
  /** The bytes of tokens, by their ids. */
  readonly #bytesOf: number[] = [];
  /** The text that is not in a chunk yet, and the overlap before it. */
  #text = "";
  /** The ends of its tokens. */
  #ends: number[] = [];
  /** Bytes of its last tokens that begin a character. */
  #begun = 0;
  /** The number of its tokens that are already in the last chunk. */
  #known = 0;
  /** The beginnings of pages in it, in order. The first one began at 0, or before. */
  #pages: { at: number; page: number | null }[] = [];

  constructor(tokenizer: ChunkTokenizer, sizes: ChunkSizes) {
    this.#tokenizer = tokenizer;
    this.#sizes = sizes;
  }

  /** Reads a page, and gives the chunks that are complete. To be drained before the next call. */
  *push(text: string, page: number | null): Generator<Chunk, void> {
    const lines = text.toWellFormed().replaceAll("\r\n", "\n");
    const added = this.#text === "" ? lines : `\n\n${lines}`;
    if (added === "") return;
    this.#pages.push({ at: this.#text === "" ? 0 : this.#text.length + 2, page });
    let from = 0;
    for (const ids of this.#tokenizer.slices(added)) {
      for (let index = 0; index < ids.length; index += this.#sizes.max) {
        from = this.#append(added, from, ids.slice(index, index + this.#sizes.max));
        while (this.#ends.length > this.#sizes.max) {
          const chunk = this.#cut(this.#end());
          if (chunk) yield chunk;
        }
      }
    }
  }

  /** Gives the last chunk. */
  *end(): Generator<Chunk, void> {
    if (this.#ends.length <= this.#known) return;
    const chunk = this.#cut(this.#ends.length);
    if (chunk) yield chunk;
  }

  /** Adds tokens of a text from `from` on, and gives where they end in it. A token that ends within a character ends before it. */
  #append(added: string, from: number, ids: readonly number[]): number {
    const base = this.#text.length - from;
    let at = from;
    for (const id of ids) {
      let length = this.#bytesOf[id];
      if (length === undefined) {
        length = this.#tokenizer.bytes(id).length;
        this.#bytesOf[id] = length;
      }
      this.#begun += length;
      for (let size = utf8Length(added, at); this.#begun >= size && size > 0; size = utf8Length(added, at)) {
        this.#begun -= size;
        at += size === 4 ? 2 : 1;
      }
      this.#ends.push(base + at);
    }
    this.#text += added.slice(from, at);
    return at;
  }

  /** How many tokens the next chunk has, of more than fit. */
  #end(): number {
    const { max } = this.#sizes;
    const least = Math.ceil(max * LEAST);
    const [from, to] = [this.#endOf(least), this.#endOf(max)];
    // A border is known by what follows it.
    const tail = this.#text.slice(from, to + 1);
    for (const border of [PARAGRAPH_END, SENTENCE_END, LINE_END, WORD_END]) {
      const end = lastEnd(tail, border);
      if (end === undefined || from + end > to) continue;
      // Tokens that begin the next character end at its border, too.
      const count = Math.min(max, this.#tokensUntil(from + end));
      if (count >= least) return count;
    }
    return max;
  }

  /** Makes a chunk of the first `count` tokens, and drops what no later one has. Undefined where it is white space. */
  #cut(count: number): Chunk | undefined {
    const end = this.#endOf(count);
    const whole = this.#text.slice(0, end);
    const text = whole.trim();
    const begin = whole.length - whole.trimStart().length;
    const chunk = {
      text,
      tokens: count,
      page: this.#pageAt(begin),
      lastPage: this.#pageAt(Math.max(begin, whole.trimEnd().length - 1)),
    };
    const next = count < this.#ends.length ? this.#overlapFrom(count) : count;
    const dropped = this.#endOf(next);
    this.#known = count - next;
    this.#text = this.#text.slice(dropped);
    this.#ends = this.#ends.slice(next).map((each) => each - dropped);
    const current = this.#pages.findLastIndex(({ at }) => at <= dropped);
    this.#pages = this.#pages.slice(Math.max(0, current)).map(({ at, page }) => ({ at: at - dropped, page }));
    return text === "" ? undefined : chunk;
  }

  /** With which token the overlap of a chunk of `count` tokens begins: of a sentence or a word near by. */
  #overlapFrom(count: number): number {
    const { overlap } = this.#sizes;
    const first = count - overlap;
    if (overlap === 0) return count;
    const [from, to] = [this.#endOf(first), this.#endOf(first + Math.ceil(overlap / 2))];
    const head = this.#text.slice(from, to + 1);
    for (const border of [PARAGRAPH_END, SENTENCE_END, LINE_END, WORD_END]) {
      const end = firstEnd(head, border);
      if (end !== undefined && from + end <= to) return Math.max(first, this.#tokensUntil(from + end));
    }
    return first;
  }

  /** The end of this many tokens. */
  #endOf(count: number): number {
    return count === 0 ? 0 : (this.#ends[count - 1] ?? this.#text.length);
  }

  /** The number of tokens that end at a position or before it. */
  #tokensUntil(at: number): number {
    let [low, high] = [0, this.#ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#ends[middle] ?? 0) <= at) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #pageAt(at: number): number | null {
    return this.#pages.findLast((each) => each.at <= at)?.page ?? this.#pages[0]?.page ?? null;
  }
}

/** The bytes of the character at a position in UTF-8; 0 at the end. */
function utf8Length(text: string, at: number): number {
  const unit = text.charCodeAt(at);
  if (Number.isNaN(unit)) return 0;
  if (unit < 0x80) return 1;
  if (unit < 0x800) return 2;
  return unit >= 0xd800 && unit < 0xdc00 ? 4 : 3;
}

function lastEnd(text: string, border: RegExp): number | undefined {
  let last: number | undefined;
  for (const { index, 0: match } of text.matchAll(border)) last = index + match.length;
  return last;
}

function firstEnd(text: string, border: RegExp): number | undefined {
  for (const { index, 0: match } of text.matchAll(border)) return index + match.length;
  return undefined;
}
