import type { TokenLogprob } from "@responses-edge/turn/contract/engine";

/**
 * Finds the sampled tokens of a text that is shown.
 *
 * vLLM sends an entry for every sampled token, also for reasoning, `<think>`, the syntax of calls and the end of the
 * text. Text comes later than its tokens (a parser holds it back), merged with other text, or not at all. So entries
 * are kept until their bytes are found in a text: texts are matched in order, and entries between two texts were not
 * shown. A token belongs to the text that has its first shown byte. Tokens of an unfinished character have no bytes, or
 * U+FFFD before 0.11: they belong to the token that completes it.
 *
 * Work is linear in tokens and text: everything that is searched is consumed, or given up.
 */
export class LogprobAligner {
  #pending: TokenLogprob[] = [];
  #head = 0;
  #behindCall: boolean;
  /** Bytes of the head that have been shown; if there are any, its entry was given. */
  #shown = 0;

  /** `behindCall`: a call has come before any entry. */
  constructor(behindCall = false) {
    this.#behindCall = behindCall;
  }

  push(entries: readonly TokenLogprob[]): void {
    for (const entry of entries) this.#pending.push(entry);
  }

  /**
   * The tokens of the next text, which must be sampled by now; none if they cannot be found. `isNewest`: no text that
   * came with it was sampled later.
   */
  take(text: string, isNewest: boolean): TokenLogprob[] {
    const taken: TokenLogprob[] = [];
    if (this.#head >= this.#pending.length) return taken;
    const bytes = encoder.encode(text);
    const rest = this.#finishHead(bytes);
    // After a call, bytes that look like the text may still be the call's.
    const at = this.#behindCall && isNewest ? rest : this.#walk(bytes, rest, taken);
    if (at < bytes.length) this.#takeBehind(bytes, at, isNewest, taken);
    this.#behindCall = false;
    this.#compact();
    return taken;
  }

  /** Skips all tokens sampled so far, because a call has begun. */
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

  /** Continues a token whose beginning was in the last text. Gives the number of its bytes. */
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

  /** Takes tokens as long as they match the text one after another. Gives the end of the match. */
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
      // Nothing else says which tokens the last character has.
      taken.push(...parts);
      return bytes.length;
    }
    this.#head = start();
    return at;
  }

  /** Takes a text that comes after something that is not shown. */
  #takeBehind(bytes: Uint8Array, from: number, fromEnd: boolean, taken: TokenLogprob[]): void {
    const offset = this.#seek(bytes.subarray(from), fromEnd);
    const at = offset ? from + this.#takeCutHead(bytes, from, offset, taken) : from;
    // If the text is nowhere complete, each matching token is taken, and the others are left out.
    if (offset === undefined || this.#walk(bytes, at, taken) < bytes.length) this.#takeSingly(bytes, at, taken);
  }

  /**
   * Finds the token at which a later text begins: the last match if the text is the newest, otherwise the first; a
   * match at the beginning of a token is preferred to one inside. Gives the text's offset in that token, or undefined
   * if the text is nowhere complete.
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
    // The text may begin with the end of a character: the tokens before it, which decode to nothing, are its beginning.
    let first = this.#head + found.entry;
    while (found.offset === 0 && first > this.#head && isEmpty(this.#pending[first - 1])) first -= 1;
    this.#head = first;
    this.#shown = 0;
    return found.offset;
  }

  /** Takes a token of which only the end is shown. Gives the number of its bytes in the text. */
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

/** The number of bytes that two lists have in common from two positions on. */
function commonBytes(a: ArrayLike<number>, fromA: number, b: ArrayLike<number>, fromB: number): number {
  let length = 0;
  while (fromA + length < a.length && fromB + length < b.length && a[fromA + length] === b[fromB + length]) length += 1;
  return length;
}

/** SentencePiece tokens are decoded without their leading space: the number of bytes to skip, or -1. */
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

/** The positions of a text in another, each once (Knuth, Morris and Pratt). */
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
