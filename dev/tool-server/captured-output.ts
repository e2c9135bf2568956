/** The output of a program: all of it, or its beginning and its end, so that an endless program uses bounded memory. */
export class CapturedOutput {
  readonly #half: number;
  readonly #head: Buffer[] = [];
  #headBytes = 0;
  readonly #tail: Buffer[] = [];
  #tailBytes = 0;
  #leftOut = 0;

  /** Keeps `limit` bytes. */
  constructor(limit: number) {
    this.#half = Math.floor(limit / 2);
  }

  add(chunk: Buffer): void {
    const room = this.#half - this.#headBytes;
    if (room > 0) {
      this.#head.push(chunk.subarray(0, room));
      this.#headBytes += Math.min(room, chunk.length);
    }
    if (chunk.length > room) this.#addToTail(chunk.subarray(Math.max(room, 0)));
  }

  /** As UTF-8. An incomplete character becomes U+FFFD. At the cut it is left out. */
  text(): string {
    const head = Buffer.concat(this.#head);
    const tail = Buffer.concat(this.#tail);
    if (this.#leftOut === 0) return decode(Buffer.concat([head, tail]));
    const start = decode(head, { stream: true });
    return `${start}\n[… ${this.#leftOut} bytes left out …]\n${decode(withoutPartialCharacter(tail))}`;
  }

  #addToTail(chunk: Buffer): void {
    this.#tail.push(chunk);
    this.#tailBytes += chunk.length;
    while (this.#tailBytes > this.#half) {
      const oldest = this.#tail.shift();
      if (oldest === undefined) return;
      const surplus = Math.min(this.#tailBytes - this.#half, oldest.length);
      if (surplus < oldest.length) this.#tail.unshift(oldest.subarray(surplus));
      this.#tailBytes -= surplus;
      this.#leftOut += surplus;
    }
  }
}

function decode(bytes: Buffer, options?: TextDecodeOptions): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes, options);
}

function withoutPartialCharacter(bytes: Buffer): Buffer {
  let start = 0;
  while (start < 3 && ((bytes[start] ?? 0) & 0xc0) === 0x80) start += 1;
  return bytes.subarray(start);
}
