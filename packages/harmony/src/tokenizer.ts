import { finish, type Steps } from "@responses-edge/bounded-io/long-work";
import type { Segment } from "./segments.ts";
import { specialTokenName } from "./vocabulary.ts";

/** gpt-oss's tokenizer. */
export interface Tokenizer {
  /** The ids of text that never becomes structure: a special token's literal gives ordinary ids. */
  encode(text: string): number[];
  /** The same in parts, each of which takes milliseconds. */
  slices(text: string): Iterable<number[]>;
  /** The text of ids, special ones as their literals; bytes that are no UTF-8 become U+FFFD. */
  decode(ids: readonly number[]): string;
  /** The bytes of one id: a token may begin or end within a character. */
  bytes(id: number): Uint8Array;
}

/**
 * o200k's pattern (openai/tiktoken `tiktoken_ext/openai_public.py`). JavaScript's `\s` takes U+FEFF and not U+0085, and
 * Rust's, which tiktoken uses, the reverse; and only there `(?i:'s)` is also `'ſ`.
 */
const PIECE = new RegExp(
  [
    String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'(?:[sSſdDmMtT]|[lL]{2}|[vVrR][eE]))?`,
    String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'(?:[sSſdDmMtT]|[lL]{2}|[vVrR][eE]))?`,
    String.raw`\p{N}{1,3}`,
    String.raw` ?[^\p{White_Space}\p{L}\p{N}]+[\r\n/]*`,
    String.raw`\p{White_Space}*[\r\n]+`,
    String.raw`\p{White_Space}+(?!\P{White_Space})`,
    String.raw`\p{White_Space}+`,
  ].join("|"),
  "gu",
);

/**
 * A prompt as token ids: each string is tokenised by itself, as openai/harmony does, and so cannot become structure.
 */
export function toTokenIds(segments: readonly Segment[], tokenizer: Tokenizer): number[] {
  return finish(tokenizing(segments, tokenizer));
}

/**
 * The same in steps: megabytes take seconds. A prompt of more than `limit` tokens is not tokenised to its end; the
 * result has more than `limit` ids.
 */
export function* tokenizing(
  segments: readonly Segment[],
  tokenizer: Tokenizer,
  limit = Number.POSITIVE_INFINITY,
): Steps<number[]> {
  const ids: number[] = [];
  for (const segment of segments) {
    if (typeof segment === "number") ids.push(segment);
    else {
      for (const slice of tokenizer.slices(segment)) {
        append(ids, slice);
        if (ids.length > limit) return ids;
        yield Math.min(segment.length, SLICE) / CHARACTERS_PER_UNIT;
      }
    }
    if (ids.length > limit) return ids;
  }
  return ids;
}

/** Characters per microsecond if none of the words is a token. */
const CHARACTERS_PER_UNIT = 2;

function append(ids: number[], more: readonly number[]): void {
  for (const id of more) ids.push(id);
}

/** Bytes, one to a character: hashed, sliced and compared faster than an array of them. */
type ByteString = string;

/** A tokenizer of `o200k_base.tiktoken`: lines of a token's bytes in base64 and its rank, which is its id. */
export function createTokenizer(vocabulary: ArrayBuffer | Uint8Array): Tokenizer {
  const lines = new TextDecoder().decode(vocabulary).trimEnd().split("\n");
  return finish(creatingTokenizer(lines.map((line) => atob(line.slice(0, line.indexOf(" "))))));
}

/** Tokens of the vocabulary that are read per step. */
const TOKENS_PER_STEP = 1_000;

/** Reading a token takes a microsecond. It counts as more, because a request waits for a slice at each of its steps. */
const UNITS_PER_TOKEN = 4;

/**
 * Makes a tokenizer in steps: all of it takes about 0.2 s.
 *
 * @param vocabulary The tokens' bytes, one to a character, in the order of their ids.
 */
export function* creatingTokenizer(vocabulary: Iterable<ByteString>): Steps<Tokenizer> {
  const tokens: ByteString[] = [];
  const ranks = new Map<ByteString, number>();
  for (const token of vocabulary) {
    ranks.set(token, tokens.length);
    tokens.push(token);
    if (tokens.length % TOKENS_PER_STEP === 0) yield TOKENS_PER_STEP * UNITS_PER_TOKEN;
  }
  const decoder = new TextDecoder("utf-8", { fatal: false, ignoreBOM: true });
  const byteString = (id: number) => tokens[id] ?? utf8(specialTokenName(id));
  return {
    encode: (text) => [...encode(text.toWellFormed(), ranks)].flat(),
    slices: (text) => encode(text.toWellFormed(), ranks),
    decode: (ids) => decoder.decode(toBytes(ids.map(byteString).join(""))),
    bytes: (id) => toBytes(byteString(id)),
  };
}

const encoder = new TextEncoder();

function utf8(text: string): ByteString {
  for (let index = 0; index < text.length; index++) {
    if (text.charCodeAt(index) > 0x7f) {
      let bytes = "";
      for (const byte of encoder.encode(text)) bytes += String.fromCharCode(byte);
      return bytes;
    }
  }
  return text;
}

function toBytes(bytes: ByteString): Uint8Array {
  const array = new Uint8Array(bytes.length);
  for (let index = 0; index < bytes.length; index++) array[index] = bytes.charCodeAt(index);
  return array;
}

/**
 * The maximum length of text for the pattern, in characters: merging takes a microsecond or more per byte, and memory.
 * A longer piece is cut, into other tokens than tiktoken's; no word of any language is as long.
 */
const SLICE = 1 << 14;

function* encode(text: string, ranks: ReadonlyMap<ByteString, number>): Generator<number[]> {
  let start = 0;
  while (start < text.length) {
    const ids: number[] = [];
    const end = sliceEnd(text, start);
    const pieces = text.slice(start, end).match(PIECE) ?? [];
    // Text after the slice may change its last two pieces (`don` and `'`, `  \n` and `  `), and no earlier one.
    const settled = end === text.length ? pieces : pieces.slice(0, Math.max(1, pieces.length - 2));
    for (const piece of settled) {
      const bytes = utf8(piece);
      const id = ranks.get(bytes);
      if (id !== undefined) ids.push(id);
      else if (bytes.length <= SHORT) mergeShort(bytes, ranks, ids);
      else mergeLong(bytes, ranks, ids);
      start += piece.length;
    }
    yield ids;
  }
}

function sliceEnd(text: string, start: number): number {
  const end = start + SLICE;
  if (end >= text.length) return text.length;
  const splitsPair = (text.charCodeAt(end) & 0xfc00) === 0xdc00;
  return splitsPair ? end - 1 : end;
}

const SHORT = 64;

/**
 * Byte-pair encoding: joins the neighbours of the lowest rank, the leftmost first, until no neighbours form a token.
 */
function mergeShort(bytes: ByteString, ranks: ReadonlyMap<ByteString, number>, ids: number[]): void {
  // Part i is bytes[starts[i]..starts[i + 1]]; pairs[i] is the rank of parts i and i + 1 together.
  const starts: number[] = [];
  const pairs: number[] = [];
  const rank = (from: number) => {
    const end = starts[from + 2];
    return end === undefined ? Infinity : (ranks.get(bytes.slice(starts[from], end)) ?? Infinity);
  };
  for (let index = 0; index <= bytes.length; index++) starts.push(index);
  for (let index = 0; index < bytes.length; index++) pairs.push(rank(index));
  for (;;) {
    let lowest = Infinity;
    let at = 0;
    for (let index = 0; index < pairs.length; index++) {
      const candidate = pairs[index] ?? Infinity;
      if (candidate < lowest) {
        lowest = candidate;
        at = index;
      }
    }
    if (lowest === Infinity) break;
    starts.splice(at + 1, 1);
    pairs.splice(at, 1);
    pairs[at] = rank(at);
    if (at > 0) pairs[at - 1] = rank(at - 1);
  }
  for (let index = 0; index + 1 < starts.length; index++) {
    ids.push(idOf(bytes.slice(starts[index], starts[index + 1]), ranks));
  }
}

function idOf(token: ByteString, ranks: ReadonlyMap<ByteString, number>): number {
  const id = ranks.get(token);
  if (id === undefined) throw new Error("The vocabulary lacks a single byte.");
  return id;
}

/** The same, with a heap of pairs instead of a search, which would take hours for a run of a million letters. */
function mergeLong(bytes: ByteString, ranks: ReadonlyMap<ByteString, number>, ids: number[]): void {
  const size = bytes.length;
  // The first byte names a part; ends[part] is its end and the beginning of the next one, before[part] the previous
  // one.
  const ends = new Int32Array(size);
  const before = new Int32Array(size);
  const tokens = new Int32Array(size);
  const current = new Float64Array(size).fill(Infinity);
  const heap = new KeyHeap(size);
  for (let part = 0; part < size; part++) {
    ends[part] = part + 1;
    before[part] = part - 1;
    tokens[part] = idOf(bytes.charAt(part), ranks);
  }
  const consider = (part: number) => {
    const next = ends[part] ?? size;
    const rank = next < size ? joinedRank(bytes, part, next, ends[next] ?? size, tokens, ranks) : NO_RANK;
    if (rank === NO_RANK) {
      current[part] = Infinity;
      return;
    }
    // Rank and position in one number, which orders by rank and then from the left.
    const key = rank * POSITIONS + part;
    current[part] = key;
    heap.push(key);
  };
  for (let part = 0; part < size; part++) consider(part);
  for (let key = heap.pop(); key !== Infinity; key = heap.pop()) {
    const part = key % POSITIONS;
    if (current[part] !== key) continue;
    const next = ends[part] ?? size;
    const end = ends[next] ?? size;
    ends[part] = end;
    tokens[part] = (key - part) / POSITIONS;
    current[next] = Infinity;
    if (end < size) before[end] = part;
    consider(part);
    const previous = before[part] ?? -1;
    if (previous >= 0) consider(previous);
  }
  for (let part = 0; part < size; part = ends[part] ?? size) ids.push(tokens[part] ?? 0);
}

/** Two tokens make no token. */
const NO_RANK = -1;

/**
 * The token of each pair of tokens, as far as recently asked: a look-up by their text costs ten times as much. By a
 * hash of the two.
 */
const JOINED = 1 << 15;
const joinedPairs = new Float64Array(JOINED).fill(-1);
const joinedRanks = new Int32Array(JOINED);

/** Larger than the number of tokens. */
const TOKENS = 1 << 18;

/** The rank of the token of two parts, which begin at `part` and `next`. */
function joinedRank(
  bytes: ByteString,
  part: number,
  next: number,
  end: number,
  tokens: Int32Array,
  ranks: ReadonlyMap<ByteString, number>,
): number {
  if (end - part > LONGEST_TOKEN) return NO_RANK;
  const left = tokens[part] ?? 0;
  const right = tokens[next] ?? 0;
  const pair = left * TOKENS + right;
  const at = (Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b)) >>> (32 - 15);
  if (joinedPairs[at] !== pair) {
    joinedPairs[at] = pair;
    joinedRanks[at] = ranks.get(bytes.slice(part, end)) ?? NO_RANK;
  }
  return joinedRanks[at] ?? NO_RANK;
}

/** In bytes; o200k's is 128 spaces. */
const LONGEST_TOKEN = 128;

/** Larger than the number of bytes of a piece. */
const POSITIONS = 4 * SLICE;

/** The smallest of many numbers first. */
class KeyHeap {
  readonly #keys: Float64Array;
  #size = 0;

  /** `parts`: each part of a piece is pushed once, and each merge of two pushes two more. */
  constructor(parts: number) {
    this.#keys = new Float64Array(3 * parts);
  }

  push(key: number): void {
    const keys = this.#keys;
    let at = this.#size++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = keys[parent] ?? 0;
      if (above <= key) break;
      keys[at] = above;
      at = parent;
    }
    keys[at] = key;
  }

  /** Takes the smallest; Infinity if there is none. */
  pop(): number {
    if (this.#size === 0) return Infinity;
    const keys = this.#keys;
    const top = keys[0] ?? Infinity;
    const size = --this.#size;
    const last = keys[size] ?? Infinity;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && (keys[child + 1] ?? Infinity) < (keys[child] ?? Infinity)) child += 1;
      const below = keys[child] ?? Infinity;
      if (below >= last) break;
      keys[at] = below;
      at = child;
    }
    keys[at] = last;
    return top;
  }
}
