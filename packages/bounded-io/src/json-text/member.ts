/**
 * Finds one member of a JSON text's top-level object while the text passes, in pieces of any size, without holding the
 * text. Holds only the member's value, of at most {@link MAX_VALUE_BYTES}. The text is not validated: a result from
 * invalid JSON means nothing.
 */

/** A longer value is not kept. */
const MAX_VALUE_BYTES = 16 * 1024;

/** A longer key, as it is written, is none of the wanted ones. */
const MAX_KEY_BYTES = 64;

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BACKSLASH = 0x5c;

/** The change of the depth by a byte outside of strings. */
const DEPTH = new Int8Array(256);
for (const open of "[{") DEPTH[open.charCodeAt(0)] = 1;
for (const close of "]}") DEPTH[close.charCodeAt(0)] = -1;

/** Bytes outside of strings that form the structure of the text. */
const MATTERS = new Uint8Array(256);
for (const byte of '[]{}",:') MATTERS[byte.charCodeAt(0)] = 1;

const LEFT_BRACE = 0x7b;

export class JsonMember {
  readonly #name: string;
  readonly #outer: string | undefined;
  readonly #onValue: (value: unknown) => void;
  #depth = 0;
  /** The depth of the object whose members are searched: 1, or 2 in the member `outer`. */
  #level = 1;
  #isInString = false;
  #isEscaped = false;
  /** A string that begins now is a key: of the object at `#level`. */
  #awaitsKey = false;
  /** The key that is being read. */
  #key: number[] | undefined;
  /** The last key of the object at `#level`, if it has been read and its value has not. */
  #lastKey: string | undefined;
  /** The value that is being read. */
  #value: number[] | undefined;

  /**
   * `onValue` is called with each value of the member `name`. With `outer`, also with that of the member in the object
   * of the top-level member `outer`.
   */
  constructor(name: string, onValue: (value: unknown) => void, outer?: string) {
    this.#name = name;
    this.#outer = outer;
    this.#onValue = onValue;
  }

  /** Begins with another text. */
  reset(): void {
    this.#depth = 0;
    this.#level = 1;
    this.#isInString = false;
    this.#isEscaped = false;
    this.#awaitsKey = false;
    this.#key = undefined;
    this.#lastKey = undefined;
    this.#value = undefined;
  }

  /** Reads the next bytes of the text: those from `start` to before `end`. */
  push(bytes: Uint8Array, start = 0, end = bytes.length): void {
    let at = start;
    while (at < end) {
      const from = at;
      if (this.#isInString) {
        at = this.#endOfString(bytes, at, end);
        const kept = this.#key ?? this.#value;
        if (kept) this.#keep(kept, bytes, from, at);
        if (!this.#isInString) this.#key &&= this.#endKey(this.#key);
        continue;
      }
      while (at < end && MATTERS[bytes[at] as number] === 0) at += 1;
      if (this.#value && at > from) this.#keep(this.#value, bytes, from, at);
      if (at < end) {
        this.#take(bytes[at] as number);
        at += 1;
      }
    }
  }

  /** The position after the end of the string, or `end`. */
  #endOfString(bytes: Uint8Array, start: number, end: number): number {
    for (let at = start; at < end; at += 1) {
      if (this.#isEscaped) this.#isEscaped = false;
      else if (bytes[at] === BACKSLASH) this.#isEscaped = true;
      else if (bytes[at] === QUOTE) {
        this.#isInString = false;
        return at + 1;
      }
    }
    return end;
  }

  /** Takes a byte of the structure. */
  #take(byte: number): void {
    const isOutside = this.#depth === this.#level;
    if (byte === QUOTE) {
      this.#isInString = true;
      if (isOutside && this.#awaitsKey) {
        this.#awaitsKey = false;
        this.#key = [QUOTE];
      } else this.#value?.push(byte);
      return;
    }
    if (byte === COMMA || byte === COLON) {
      if (!isOutside) this.#value?.push(byte);
      else if (byte === COLON) {
        if (this.#lastKey === this.#name) this.#value = [];
      } else {
        this.#endValue();
        this.#awaitsKey = true;
      }
      return;
    }
    const step = DEPTH[byte] as number;
    if (isOutside && step < 0) this.#endValue();
    else this.#value?.push(byte);
    this.#depth += step;
    if (step > 0) this.#enter(byte);
    else if (this.#depth < this.#level) this.#level = 1;
  }

  /** A list or an object begins: the text's own, or one in it. */
  #enter(byte: number): void {
    const isOuter = this.#level === 1 && this.#depth === 2 && this.#lastKey === this.#outer;
    if (isOuter && this.#outer !== undefined && byte === LEFT_BRACE) this.#level = 2;
    if (this.#depth !== this.#level) return;
    this.#awaitsKey = byte === LEFT_BRACE;
    this.#lastKey = undefined;
  }

  #endKey(written: readonly number[]): undefined {
    this.#lastKey = written.length > MAX_KEY_BYTES ? undefined : (parsed(written) as string | undefined);
  }

  #endValue(): void {
    const value = this.#value;
    this.#value = undefined;
    this.#lastKey = undefined;
    if (value && value.length <= MAX_VALUE_BYTES) this.#onValue(parsed(value));
  }

  #keep(kept: number[], bytes: Uint8Array, start: number, end: number): void {
    const most = kept === this.#key ? MAX_KEY_BYTES : MAX_VALUE_BYTES;
    // One more than allowed shows that it was too long.
    const last = Math.min(end, start + most + 1 - kept.length);
    for (let at = start; at < last; at += 1) kept.push(bytes[at] as number);
  }
}

/** The value of a JSON text; undefined for an invalid one. */
function parsed(bytes: readonly number[]): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(bytes))) as unknown;
  } catch {
    return undefined;
  }
}
