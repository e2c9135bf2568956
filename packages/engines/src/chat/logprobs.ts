import type { TokenLogprob } from "@responses-edge/turn/engine";

/**
 * Which of the sampled tokens make up a text that is shown.
 *
 * vLLM sends an entry for every token that it samples: also for reasoning, `<think>`, the syntax of calls and the end of
 * the text. Text comes later than its tokens (a parser holds it back), merged with other text, or not at all. So entries
 * are kept until text comes that their bytes are found in: texts are matched in the order in which they come, and what lies
 * between two texts was not shown. A token belongs to the text in which its first shown byte stands. Tokens of an unfinished character have no bytes, or U+FFFD before 0.11: they belong to the token that completes it.
 *
 * Work is linear in tokens and text: whatever is searched is consumed, or given up.
 */
export class LogprobAligner {
  #pending: TokenLogprob[] = [];
  #head = 0;
  #behindCall: boolean;
  /** Bytes of the head's that have been shown; it has been given then. */
  #shown = 0;

  /** `behindCall`: a call has come before any entry. */
  constructor(behindCall = false) {
    this.#behindCall = behindCall;
  }

  push(entries: readonly TokenLogprob[]): void {
    for (const entry of entries) this.#pending.push(entry);
  }

  /**
   * The tokens of the next text, which has been sampled by now; none where they cannot be found. `isNewest`: no text
   * that has come with it was sampled later.
   */
  take(text: string, isNewest: boolean): TokenLogprob[] {
    const taken: TokenLogprob[] = [];
    if (this.#head >= this.#pending.length) return taken;
    const bytes = encoder.encode(text);
    const rest = this.#finishHead(bytes);
    // Behind a call, what looks like the text may still be the call's.
    const at = this.#behindCall && isNewest ? rest : this.#walk(bytes, rest, taken);
    if (at < bytes.length) this.#takeBehind(bytes, at, isNewest, taken);
    this.#behindCall = false;
    this.#compact();
    return taken;
  }

  /** Nothing that has been sampled so far is shown any more: a call has begun. */
  skip(): void {
    this.#behindCall = true;
    this.#pending = [];
    this.#head = 0;
    this.#shown = 0;
  }

  get #entry(): TokenLogprob | undefined {
    return this.#pending[this.#head];
  }

  #advance(): void {
    this.#head += 1;
    this.#shown = 0;
  }

  /** Goes on in a token whose beginning was in the last text. Gives how many bytes it has. */
  #finishHead(bytes: Uint8Array): number {
    const rest = this.#entry?.bytes;
    if (this.#shown === 0 || !rest) return 0;
    const common = commonBytes(rest, this.#shown, bytes, 0);
    if (this.#shown + common === rest.length) {
      this.#advance();
      return common;
    }
    if (common === bytes.length) {
      this.#shown += common;
      return common;
    }
    // The token was cut where the last text ended.
    this.#advance();
    return 0;
  }

  /** Takes tokens for as long as one stands behind the other in the text. Gives where that ends. */
  #walk(bytes: Uint8Array, from: number, taken: TokenLogprob[]): number {
    let at = from;
    let parts: TokenLogprob[] = [];
    const start = () => this.#head - parts.length;
    while (at < bytes.length) {
      const entry = this.#entry;
      if (!entry) break;
      if (isPartial(entry)) {
        parts.push(entry);
        this.#head += 1;
        continue;
      }
      const gap = parts.length > 0 ? resumesAt(entry, bytes, at, parts) : lostSpace(entry, bytes, at);
      const common = gap < 0 ? 0 : commonBytes(entry.bytes, 0, bytes, at + gap);
      const ends = gap >= 0 && common > 0 && at + gap + common === bytes.length;
      if (gap < 0 || (common < entry.bytes.length && !ends)) {
        this.#head = start();
        return at;
      }
      taken.push(...parts, entry);
      parts = [];
      at += gap + common;
      if (common < entry.bytes.length) this.#shown = common;
      else this.#advance();
    }
    if (parts.length === 0) return at;
    if ((bytes[at] ?? 0) >= 0x80 && parts.some(hasReplacement)) {
      // Nothing else tells which tokens the last character has.
      taken.push(...parts);
      return bytes.length;
    }
    this.#head = start();
    return at;
  }

  /** Takes a text that stands behind something that is not shown. */
  #takeBehind(bytes: Uint8Array, from: number, fromEnd: boolean, taken: TokenLogprob[]): void {
    const offset = this.#seek(bytes.subarray(from), fromEnd);
    const at = offset ? from + this.#takeCutHead(bytes, from, offset, taken) : from;
    // Where the text is nowhere whole, each token that fits is taken, and the others are left out.
    if (offset === undefined || this.#walk(bytes, at, taken) < bytes.length) this.#takeSingly(bytes, at, taken);
  }

  /**
   * Goes to the token with which a text begins that stands somewhere behind: the last such place where the text is the
   * newest, else the first; one at the beginning of a token before one inside. Gives the text's offset in that token,
   * or undefined where it is nowhere whole.
   */
  #seek(text: Uint8Array, fromEnd: boolean): number | undefined {
    const starts: number[] = [];
    let length = 0;
    for (let index = this.#head; index < this.#pending.length; index += 1) {
      starts.push(length);
      length += this.#pending[index]?.bytes.length ?? 0;
    }
    const all = new Uint8Array(length);
    for (let index = 0; index < starts.length; index += 1) {
      all.set(this.#pending[this.#head + index]?.bytes ?? [], starts[index]);
    }
    let inside: { entry: number; offset: number } | undefined;
    let exact: number | undefined;
    let entry = 0;
    for (const start of occurrences(text, all)) {
      while (entry + 1 < starts.length && (starts[entry + 1] ?? 0) <= start) entry += 1;
      const offset = start - (starts[entry] ?? 0);
      if (offset === 0) exact = entry;
      else if (!inside || fromEnd) inside = { entry, offset };
      if (exact !== undefined && !fromEnd) break;
    }
    const found = exact === undefined ? inside : { entry: exact, offset: 0 };
    if (!found) return undefined;
    // Tokens of an unfinished character that it begins with.
    let first = this.#head + found.entry;
    while (found.offset === 0 && first > this.#head && isEmpty(this.#pending[first - 1])) first -= 1;
    this.#head = first;
    this.#shown = 0;
    return found.offset;
  }

  /** Takes a token of which only the end is shown. Gives how many bytes of the text that is. */
  #takeCutHead(bytes: Uint8Array, at: number, offset: number, taken: TokenLogprob[]): number {
    const entry = this.#entry;
    if (!entry) return 0;
    taken.push(entry);
    const common = commonBytes(entry.bytes, offset, bytes, at);
    if (offset + common < entry.bytes.length) this.#shown = offset + common;
    else this.#advance();
    return common;
  }

  #takeSingly(bytes: Uint8Array, from: number, taken: TokenLogprob[]): void {
    let at = from;
    while (at < bytes.length && this.#entry) {
      const before = this.#head;
      at = this.#walk(bytes, at, taken);
      if (at < bytes.length && this.#head === before) this.#advance();
    }
  }

  /** Forgets the tokens before the head. */
  #compact(): void {
    if (this.#head < this.#pending.length && this.#head < 1024) return;
    this.#pending = this.#pending.slice(this.#head);
    this.#head = 0;
  }
}

const encoder = new TextEncoder();

function isEmpty(entry: TokenLogprob | undefined): boolean {
  return entry !== undefined && entry.bytes.length === 0;
}

/** Tells whether a token is part of a character that a later one completes. */
function isPartial(entry: TokenLogprob): boolean {
  return entry.bytes.length === 0 || hasReplacement(entry);
}

function hasReplacement({ token }: TokenLogprob): boolean {
  return token.includes("\uFFFD");
}

/** The bytes that two lists have in common from two places on. */
function commonBytes(a: ArrayLike<number>, fromA: number, b: ArrayLike<number>, fromB: number): number {
  let length = 0;
  while (fromA + length < a.length && fromB + length < b.length && a[fromA + length] === b[fromB + length]) length += 1;
  return length;
}

/** SentencePiece tokens are decoded without the space before them: how many bytes to pass over, or -1. */
function lostSpace({ bytes: own }: TokenLogprob, bytes: Uint8Array, at: number): number {
  if (own[0] === bytes[at]) return 0;
  return bytes[at] === 0x20 && commonBytes(own, 0, bytes, at + 1) === own.length ? 1 : -1;
}

/** How far from `at` a token stands after `parts` of a character, or -1. */
function resumesAt(
  { bytes: own }: TokenLogprob,
  bytes: Uint8Array,
  at: number,
  parts: readonly TokenLogprob[],
): number {
  const most = parts.some(hasReplacement) ? 8 * parts.length : 0;
  for (let gap = 0; gap <= most && at + gap < bytes.length; gap += 1) {
    const common = commonBytes(own, 0, bytes, at + gap);
    if (common > 0 && (common === own.length || at + gap + common === bytes.length)) return gap;
  }
  return -1;
}

/** Where a text stands in another, each place once (Knuth, Morris and Pratt). */
function* occurrences(text: Uint8Array, all: Uint8Array): Generator<number> {
  const fallback = new Int32Array(text.length);
  for (let index = 1, length = 0; index < text.length; index += 1) {
    while (length > 0 && text[index] !== text[length]) length = fallback[length - 1] ?? 0;
    if (text[index] === text[length]) length += 1;
    fallback[index] = length;
  }
  for (let index = 0, length = 0; index < all.length; index += 1) {
    while (length > 0 && all[index] !== text[length]) length = fallback[length - 1] ?? 0;
    if (all[index] === text[length]) length += 1;
    if (length < text.length) continue;
    yield index - length + 1;
    length = fallback[length - 1] ?? 0;
  }
}
