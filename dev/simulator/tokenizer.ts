/** Harmony's special tokens: fixed ids, and (as in a real tokenizer) recognised wherever text contains the literal. */
export const SPECIAL_TOKENS = {
  "<|startoftext|>": 199998,
  "<|endoftext|>": 199999,
  "<|return|>": 200002,
  "<|constrain|>": 200003,
  "<|channel|>": 200005,
  "<|start|>": 200006,
  "<|end|>": 200007,
  "<|message|>": 200008,
  "<|call|>": 200012,
} as const;

// Every code point, a lone surrogate included, matches one alternative, so the tokens always join to the same text.
const TOKEN =
  /<\|(?:startoftext|endoftext|return|constrain|channel|start|end|message|call)\|>| ?[\p{L}\p{M}\p{N}_]{1,24}|\n| ?[^\s\p{L}\p{M}\p{N}_<]{1,16}|<|\s/gu;

const TEXT_IDS = 199_000;
const OVERFLOW_ID = 300_000;

/**
 * Splits text into tokens: a word with its leading space, a run of punctuation, a line break. The tokens join to the
 * same text.
 */
export function splitTokens(text: string): string[] {
  return text.match(TOKEN) ?? [];
}

/** A stable 32-bit hash (FNV-1a over UTF-16 units, then mixed). */
export function hash(text: string, seed = 0x811c9dc5): number {
  let value = seed >>> 0;
  for (let index = 0; index < text.length; index++) {
    value = Math.imul(value ^ text.charCodeAt(index), 0x01000193);
  }
  value = Math.imul(value ^ (value >>> 15), 0x2c1b3c6d);
  return (value ^ (value >>> 13)) >>> 0;
}

/** `length` hexadecimal digits that depend only on `seed`. */
export function hex(seed: string, length: number): string {
  let digits = "";
  for (let part = 0; digits.length < length; part++) {
    digits += hash(`${part}:${seed}`).toString(16).padStart(8, "0");
  }
  return digits.slice(0, length);
}

/** Token ids of one simulator: an id is the token's hash, so it is (but for collisions) the same in every process. */
export class Vocabulary {
  #ids = new Map<string, number>();
  #tokens = new Map<number, string>();
  #overflow = OVERFLOW_ID;

  constructor() {
    for (const [token, id] of Object.entries(SPECIAL_TOKENS)) this.#add(token, id);
  }

  /** The id of a token, given to it when first seen. */
  id(token: string): number {
    const known = this.#ids.get(token);
    if (known !== undefined) return known;
    let id = hash(token) % TEXT_IDS;
    for (let tries = 0; this.#tokens.has(id); tries++) id = tries < 64 ? (id + 1) % TEXT_IDS : this.#overflow++;
    this.#add(token, id);
    return id;
  }

  /** The text of an id; an id that was never given out reads as ` #id`. */
  token(id: number): string {
    return this.#tokens.get(id) ?? ` #${id}`;
  }

  /** Text to token ids. */
  encode(text: string): number[] {
    return splitTokens(text).map((token) => this.id(token));
  }

  /** Token ids to text: the inverse of `encode`. */
  decode(ids: readonly number[]): string {
    return ids.map((id) => this.token(id)).join("");
  }

  #add(token: string, id: number): void {
    this.#ids.set(token, id);
    this.#tokens.set(id, token);
  }
}
