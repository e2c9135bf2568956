import { BLOCK_BYTES, type Kernel } from "./kernel.ts";
import { codeBytes, MAX_DIMENSIONS } from "./quantised.ts";

/** The codes of all chunks of a store, in memory, and the search for the nearest: it compares each. */

/** A chunk that was found. */
export interface Near {
  chunk: number;
  file: number;
  /** The number of different bits of the codes. */
  distance: number;
}

/** Codes that the kernel compares in one call. */
const BATCH = 4_096;

/** The positions of the results and the codes in the kernel's memory, after the query's code. */
const OUT = MAX_DIMENSIONS / 8;
const CODES = OUT + 2 * BATCH;

/** Bytes of a chunk beside its code: its number, its file's and its distance in a search. */
const BYTES_BESIDE = 4 + 4 + 2;

/** The step by which the lists beside the codes grow. */
const GROWTH = 1.25;

export class Codes {
  readonly dimensions: number;
  readonly #kernel: Kernel;
  readonly #length: number;
  #size = 0;
  #chunks = new Uint32Array(0);
  #files = new Uint32Array(0);
  #distances = new Uint16Array(0);

  /** Only these codes use the kernel's memory. */
  constructor(kernel: Kernel, dimensions: number) {
    if (!(dimensions >= 1 && dimensions <= MAX_DIMENSIONS)) throw new RangeError(`${dimensions} dimensions`);
    this.dimensions = dimensions;
    this.#kernel = kernel;
    this.#length = codeBytes(dimensions);
  }

  /** How many chunks there are. */
  get size(): number {
    return this.#size;
  }

  /** Adds the codes of chunks of a file, which are numbered on from `firstChunk`. Throws RangeError where memory ends. */
  add(file: number, firstChunk: number, codes: Uint8Array): void {
    const count = codes.length / this.#length;
    if (!Number.isInteger(count)) throw new RangeError(`${codes.length} bytes are no codes of ${this.#length}`);
    const size = this.#size + count;
    this.#kernel.reserve(CODES + size * this.#length);
    this.#kernel.bytes().set(codes, CODES + this.#size * this.#length);
    if (size > this.#chunks.length) this.#grow(Math.ceil(size * GROWTH));
    for (let index = 0; index < count; index += 1) this.#chunks[this.#size + index] = firstChunk + index;
    this.#files.fill(file, this.#size, size);
    this.#size = size;
  }

  /** Removes the chunks of a file. The last ones take their places. */
  remove(file: number): void {
    const memory = this.#kernel.bytes();
    for (let index = this.#size - 1; index >= 0; index -= 1) {
      if (this.#files[index] !== file) continue;
      this.#size -= 1;
      const last = this.#size;
      this.#chunks[index] = this.#chunks[last] ?? 0;
      this.#files[index] = this.#files[last] ?? 0;
      const from = CODES + last * this.#length;
      memory.copyWithin(CODES + index * this.#length, from, from + this.#length);
    }
  }

  /** The chunks that differ least from a code, nearest first, of those files that `isWanted` takes; all without it. */
  nearest(code: Uint8Array, count: number, isWanted?: (file: number) => boolean): Near[] {
    if (code.length !== this.#length) throw new RangeError(`a code of ${code.length} bytes, not ${this.#length}`);
    const counts = this.#measure(code, isWanted);
    let furthest = -1;
    for (let found = 0; found < count && furthest < this.dimensions; ) {
      furthest += 1;
      found += counts[furthest] ?? 0;
    }
    const near: Near[] = [];
    for (let index = 0; index < this.#size; index += 1) {
      const distance = this.#distances[index] ?? UNWANTED;
      if (distance > furthest) continue;
      near.push({ chunk: this.#chunks[index] ?? 0, file: this.#files[index] ?? 0, distance });
    }
    near.sort((one, other) => one.distance - other.distance || one.chunk - other.chunk);
    return near.slice(0, count);
  }

  /** Records each chunk's distance, and gives the number of each distance. */
  #measure(code: Uint8Array, isWanted: ((file: number) => boolean) | undefined): Uint32Array {
    const kernel = this.#kernel;
    kernel.reserve(CODES);
    const memory = kernel.bytes();
    memory.set(code, 0);
    const distances = this.#distances;
    const counts = new Uint32Array(this.dimensions + 1);
    for (let from = 0; from < this.#size; from += BATCH) {
      const batch = Math.min(BATCH, this.#size - from);
      kernel.distances(0, CODES + from * this.#length, batch, this.#length / BLOCK_BYTES, OUT);
      distances.set(new Uint16Array(memory.buffer, OUT, batch), from);
    }
    for (let index = 0; index < this.#size; index += 1) {
      if (isWanted?.(this.#files[index] ?? 0) === false) distances[index] = UNWANTED;
      else {
        const distance = distances[index] ?? 0;
        counts[distance] = (counts[distance] ?? 0) + 1;
      }
    }
    return counts;
  }

  #grow(capacity: number): void {
    const longer = <Numbers extends Uint32Array | Uint16Array>(grown: Numbers, numbers: Numbers): Numbers => {
      grown.set(numbers.subarray(0, this.#size));
      return grown;
    };
    this.#chunks = longer(new Uint32Array(capacity), this.#chunks);
    this.#files = longer(new Uint32Array(capacity), this.#files);
    this.#distances = new Uint16Array(capacity);
  }
}

/** More than any distance. */
const UNWANTED = 0xffff;

/** The bytes of memory of this many chunks' codes. */
export function memoryOf(chunks: number, dimensions: number): number {
  return chunks * (codeBytes(dimensions) + Math.ceil(BYTES_BESIDE * GROWTH));
}
