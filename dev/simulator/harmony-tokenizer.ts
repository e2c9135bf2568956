import { badRequest } from "./errors.ts";
import { SPECIAL_TOKENS } from "./tokenizer.ts";

export const START = SPECIAL_TOKENS["<|start|>"];
export const CHANNEL = SPECIAL_TOKENS["<|channel|>"];
export const CONSTRAIN = SPECIAL_TOKENS["<|constrain|>"];
export const MESSAGE = SPECIAL_TOKENS["<|message|>"];
export const END = SPECIAL_TOKENS["<|end|>"];
export const CALL = SPECIAL_TOKENS["<|call|>"];
export const RETURN = SPECIAL_TOKENS["<|return|>"];
export const ENDOFTEXT = SPECIAL_TOKENS["<|endoftext|>"];

/** Text as ordinary tokens, or token ids. Literals of special tokens in the text stay text. */
export type Segment = string | number;

const FIRST_SPECIAL = 199_998;
const LAST_SPECIAL = 201_087;
const NAMES = new Map<number, string>(
  [...Object.entries(SPECIAL_TOKENS), ["<|endofprompt|>", 200_018] as const].map(([name, id]) => [id, name]),
);
const IDS = new Map([...NAMES].map(([id, name]) => [name, id]));
const LITERAL = /<\|(?:[a-z]+|reserved_\d{6})\|>/g;

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: false, ignoreBOM: true });

/** True if the id is a control token's: every id from the first control token on. */
export function isSpecial(id: number): boolean {
  return id >= FIRST_SPECIAL;
}

/** The id of a special token's literal. `undefined` for another text. */
export function specialId(literal: string): number | undefined {
  const named = IDS.get(literal);
  if (named !== undefined) return named;
  const id = Number(/^<\|reserved_(\d{6})\|>$/.exec(literal)?.[1]);
  return id >= 200_000 && id <= LAST_SPECIAL && !NAMES.has(id) ? id : undefined;
}

/** Text in which literals of special tokens become those tokens, as a Hugging Face tokenizer reads text. */
export function readLiterals(text: string): Segment[] {
  const segments: Segment[] = [];
  let from = 0;
  for (const { 0: literal, index } of text.matchAll(LITERAL)) {
    const id = specialId(literal);
    if (id === undefined) continue;
    if (index > from) segments.push(text.slice(from, index));
    segments.push(id);
    from = index + literal.length;
  }
  if (from < text.length) segments.push(text.slice(from));
  return segments;
}

/** The size of the cache of encoded texts, in characters. */
const REMEMBERED = 10_000_000;

/** `o200k_harmony`, the vocabulary of gpt-oss. */
export class HarmonyTokenizer {
  #encode: (text: string) => number[];
  /** The token ids of texts that were encoded before: a conversation's prompt mostly repeats the previous prompt. */
  #known = new Map<string, readonly number[]>();
  #knownCharacters = 0;
  #ranks: readonly (string | readonly number[])[];

  constructor(encode: (text: string) => number[], ranks: readonly (string | readonly number[])[]) {
    this.#encode = encode;
    this.#ranks = ranks;
  }

  /** Text to token ids. Literals of special tokens become the special tokens' ids. */
  encode(text: string): number[] {
    return this.encodeSegments(readLiterals(text));
  }

  /** Each text separately, as ordinary text. */
  encodeSegments(segments: readonly Segment[]): number[] {
    return segments.flatMap((segment) => (typeof segment === "number" ? segment : this.#idsOf(segment)));
  }

  #idsOf(text: string): readonly number[] {
    const known = this.#known.get(text);
    if (known !== undefined) return known;
    const ids = this.#encode(text);
    this.#knownCharacters += text.length;
    if (this.#knownCharacters > REMEMBERED) {
      this.#known.clear();
      this.#knownCharacters = text.length;
    }
    this.#known.set(text, ids);
    return ids;
  }

  /** Token ids to text. Invalid UTF-8 becomes U+FFFD. */
  decode(ids: readonly number[]): string {
    let text = "";
    let bytes: number[] = [];
    const flush = () => {
      if (bytes.length > 0) text += decoder.decode(Uint8Array.from(bytes));
      bytes = [];
    };
    for (const id of ids) {
      const piece = this.#piece(id);
      if (typeof piece === "string") {
        flush();
        text += piece;
      } else {
        bytes.push(...piece);
      }
    }
    flush();
    return text;
  }

  /** The text of one token. */
  token(id: number): string {
    return this.decode([id]);
  }

  /** The bytes of a token, or a special token's literal. Throws vLLM's 400 for an unknown id. */
  bytes(id: number): Uint8Array {
    const piece = this.#piece(id);
    return typeof piece === "string" ? encoder.encode(piece) : Uint8Array.from(piece);
  }

  /** A token's text, or its bytes if they are not text. */
  #piece(id: number): string | readonly number[] {
    const rank = this.#ranks[id];
    if (rank !== undefined) return rank;
    if (!isSpecial(id) || id > LAST_SPECIAL) throw badRequest(`Token id ${id} is out of vocabulary`);
    return NAMES.get(id) ?? `<|reserved_${id}|>`;
  }
}

/** The text that each token adds, as in vLLM's detokenizer: it waits while the text ends in U+FFFD. */
export class Detokenizer {
  #tokenizer: HarmonyTokenizer;
  #skipSpecial: boolean;
  #held: number[] = [];

  constructor(tokenizer: HarmonyTokenizer, skipSpecial: boolean) {
    this.#tokenizer = tokenizer;
    this.#skipSpecial = skipSpecial;
  }

  /** The text that is complete after this token. */
  add(id: number): string {
    if (this.#skipSpecial && isSpecial(id)) return "";
    this.#held.push(id);
    const text = this.#tokenizer.decode(this.#held);
    if (text.endsWith("\ufffd")) return "";
    this.#held = [];
    return text;
  }
}

let loading: Promise<HarmonyTokenizer> | undefined;

/** The tokenizer. It is loaded on demand: it takes two megabytes and a quarter of a second. */
export function harmonyTokenizer(): Promise<HarmonyTokenizer> {
  loading ??= load();
  return loading;
}

async function load(): Promise<HarmonyTokenizer> {
  const [{ encode }, { default: ranks }] = await Promise.all([
    import("gpt-tokenizer/encoding/o200k_base"),
    import("gpt-tokenizer/bpeRanks/o200k_base"),
  ]);
  const options = { disallowedSpecial: new Set<string>() };
  return new HarmonyTokenizer((text) => encode(text, options), ranks);
}
