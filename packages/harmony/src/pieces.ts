import type { Segment } from "./segments.ts";
import { CALL, ENDOFTEXT, FIRST_SPECIAL_ID, RETURN, SPECIAL_TOKENS, specialTokenName } from "./vocabulary.ts";

/** One event of vLLM's stream: text, and the ids of its tokens if the server gives them. */
export interface Chunk {
  text: string;
  ids: readonly number[] | undefined;
}

/** The part of a tokenizer that reading tokens needs: the bytes of an ordinary one. */
export interface TokenBytes {
  bytes(id: number): Uint8Array;
}

/** The id of a special token's literal, or undefined for text that is none. */
function specialId(literal: string): number | undefined {
  const known = LITERALS.get(literal);
  if (known !== undefined) return known;
  const id = Number(/^<\|reserved_(\d{6})\|>$/.exec(literal)?.[1]);
  return id >= FIRST_SPECIAL_ID && specialTokenName(id) === literal ? id : undefined;
}

const LITERALS = new Map<string, number>(Object.entries(SPECIAL_TOKENS));

/** The length of `<|reserved_200000|>`, the longest literal. */
const LONGEST_LITERAL = 19;

const LITERAL = /<\|[a-z]+(?:_\d{6})?\|>/g;

/** Cuts a text at all literals of special tokens. */
export function cutAtLiterals(text: string): Segment[] {
  const pieces: Segment[] = [];
  let from = 0;
  for (const match of text.matchAll(LITERAL)) {
    const id = specialId(match[0]);
    if (id === undefined) continue;
    if (match.index > from) pieces.push(text.slice(from, match.index));
    pieces.push(id);
    from = match.index + match[0].length;
  }
  if (from < text.length) pieces.push(text.slice(from));
  return pieces;
}

/**
 * The pieces of a chunk with ids, or undefined if only a tokenizer can distinguish them. An id makes a marker; its
 * literal only shows the position, and may also be text that the model wrote with ordinary tokens.
 */
export function cutChunk(text: string, ids: readonly number[]): Segment[] | undefined {
  if (ids.every((id) => id < FIRST_SPECIAL_ID)) return text === "" ? [] : [text];
  const specials = ids.filter((id) => id >= FIRST_SPECIAL_ID);
  const pieces = cutAtLiterals(text);
  const literals = pieces.filter((piece) => typeof piece === "number");
  const last = ids.at(-1);
  const endsInStop = last === RETURN || last === CALL || last === ENDOFTEXT;
  // vLLM leaves a token that stops the generation out of the text. If one is at the end, a literal of it is text.
  if (endsInStop && equal(literals, specials.slice(0, -1))) return [...pieces, last];
  return equal(literals, specials) && !(endsInStop && ids.length > 1) ? pieces : undefined;
}

function equal(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((id, index) => id === b[index]);
}

/**
 * Turns ids into pieces. Its text is the same as vLLM's, so that the text after some ids does not depend on the
 * decoder: a token that ends within a character is held back completely until the character is complete; an incomplete
 * character at the end becomes U+FFFD.
 */
class PieceDecoder {
  readonly #tokenizer: TokenBytes;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true, fatal: false });
  #buffered = "";
  /** The maximum number of last bytes in an incomplete character. */
  #end: number[] = [];

  constructor(tokenizer: TokenBytes) {
    this.#tokenizer = tokenizer;
  }

  decode(ids: readonly number[]): Segment[] {
    const pieces: Segment[] = [];
    let text = "";
    for (const id of ids) {
      if (id < FIRST_SPECIAL_ID) {
        text += this.#add(this.#tokenizer.bytes(id));
        continue;
      }
      text += this.#take();
      if (text !== "") pieces.push(text);
      pieces.push(id);
      text = "";
    }
    if (text !== "") pieces.push(text);
    return pieces;
  }

  #add(bytes: Uint8Array): string {
    this.#buffered += this.#decoder.decode(bytes, { stream: true });
    this.#end = [...this.#end, ...bytes.subarray(-4)].slice(-4);
    return endsWithinCharacter(this.#end) ? "" : this.#take();
  }

  #take(): string {
    const text = this.#buffered + this.#decoder.decode();
    this.#buffered = "";
    this.#end = [];
    return text;
  }

  flush(): Segment[] {
    const text = this.#take();
    return text === "" ? [] : [text];
  }
}

/** Tells whether some bytes of UTF-8, at least those of the last character, decode to a text that ends in U+FFFD. */
function endsWithinCharacter(bytes: readonly number[]): boolean {
  if ((bytes.at(-1) ?? 0) < 0x80) return false;
  return new TextDecoder().decode(Uint8Array.from(bytes)).endsWith("\uFFFD");
}

/** The pieces of some token ids, exactly. An incomplete character at their end becomes U+FFFD. */
export function decodePieces(ids: readonly number[], tokenizer: TokenBytes): Segment[] {
  const decoder = new PieceDecoder(tokenizer);
  return [...decoder.decode(ids), ...decoder.flush()];
}

/**
 * Distinguishes text and special tokens in a stream of chunks. Ids decide, with vLLM's own text as long as that is
 * unambiguous. If it is not, `read` gives undefined and `needsTokenizer` is true: give it one with `useTokenizer`, read
 * the same chunk again, and from then on all text is decoded from ids. For a server without ids there are only
 * literals.
 */
export class PieceReader {
  /** The ids since the last moment when the text was known to be complete for its ids, and the length of their text. */
  #ids: number[] = [];
  #given = 0;
  #hasIds = false;
  /** The end of a text without ids that may become a literal. */
  #buffered = "";
  #decoder: PieceDecoder | undefined;
  /** Text of ids that were read before there was a tokenizer, and that vLLM has not given. */
  #behind = "";
  #needsTokenizer = false;

  /** Tells whether the last chunk needs a tokenizer. */
  get needsTokenizer(): boolean {
    return this.#needsTokenizer;
  }

  /** The pieces that a chunk completes; undefined if it must be read again, with a tokenizer. */
  read(chunk: Chunk): Segment[] | undefined {
    const { text, ids } = chunk;
    if (ids === undefined) return this.#readText(text);
    this.#hasIds = true;
    if (this.#decoder !== undefined) {
      const pieces = this.#decoder.decode(ids);
      return this.#behind === "" ? pieces : [...this.#takeBehind(), ...pieces];
    }
    const pieces = cutChunk(text, ids);
    if (pieces === undefined) this.#needsTokenizer = true;
    else this.#remember(text, ids, pieces);
    return pieces;
  }

  /** Decodes everything from here on, beginning with the part of a character that vLLM still holds back. */
  useTokenizer(tokenizer: TokenBytes): void {
    if (this.#decoder !== undefined) return;
    this.#needsTokenizer = false;
    this.#decoder = new PieceDecoder(tokenizer);
    this.#behind = this.#decoder.decode(this.#ids).join("").slice(this.#given);
    this.#ids = [];
  }

  /** Gives the held-back text, once the stream has ended. */
  flush(): Segment[] {
    const rest = this.#buffered;
    this.#buffered = "";
    return [...this.#takeBehind(), ...(this.#decoder?.flush() ?? []), ...(rest === "" ? [] : [rest])];
  }

  #takeBehind(): Segment[] {
    const behind = this.#behind;
    this.#behind = "";
    return behind === "" ? [] : [behind];
  }

  #remember(text: string, ids: readonly number[], pieces: readonly Segment[]): void {
    const special = ids.findLastIndex((id) => id >= FIRST_SPECIAL_ID);
    if (special !== -1) {
      const tail = pieces.at(-1);
      this.#ids = ids.slice(special + 1);
      this.#given = typeof tail === "string" ? tail.length : 0;
    } else if (ids.length === 1 && text !== "") {
      // vLLM gives no text for a token that ends within a character; so here the text is complete for its ids.
      if (this.#ids.length > 0) this.#ids = [];
      this.#given = 0;
    } else {
      for (const id of ids) this.#ids.push(id);
      this.#given += text.length;
    }
  }

  #readText(text: string): Segment[] {
    // The server gives ids, but not with this chunk: then no literal is a marker.
    if (this.#hasIds) return text === "" ? [] : [text];
    const all = this.#buffered + text;
    const open = all.lastIndexOf("<");
    const cut = open !== -1 && mayBecomeLiteral(all.slice(open, open + LONGEST_LITERAL)) ? open : all.length;
    this.#buffered = all.slice(cut);
    return cutAtLiterals(all.slice(0, cut));
  }
}

/** Tells whether the end of a text, from its last `<` on, may become a literal. */
function mayBecomeLiteral(tail: string): boolean {
  if (tail.length < LONGEST_LITERAL && /^<\|reserved_\d*\|?$/.test(tail)) return true;
  for (const literal of LITERALS.keys()) if (tail.length < literal.length && literal.startsWith(tail)) return true;
  return "<|reserved_".startsWith(tail);
}
