/** The inner loops of a search, over bytes that lie side by side in a memory that grows and never moves within itself. */
export interface Kernel {
  /** All of the memory. A view is invalid after `reserve`. */
  bytes(): Uint8Array<ArrayBuffer>;
  /** Makes the memory at least this long. Throws RangeError if there is not enough. */
  reserve(length: number): void;
  /**
   * Writes the Hamming distances of the code at `query` to each of `count` codes from `codes` on, as 16-bit numbers at `out`. A code has
   * `blocks` times sixteen bytes.
   */
  distances(query: number, codes: number, count: number, blocks: number, out: number): void;
  /**
   * Writes the dot products of the int8 vector at `query` and each of `count` vectors from `vectors` on, as 32-bit numbers at `out`. A
   * vector has `blocks` times sixteen elements.
   */
  products(query: number, vectors: number, count: number, blocks: number, out: number): void;
}

const PAGE_BYTES = 65_536;

/** The block size of codes and vectors, in bytes. */
export const BLOCK_BYTES = 16;

/** `kernel.wasm`, with a memory of its own. Throws WebAssembly.CompileError or LinkError if the runtime has no SIMD. */
export function simdKernel(module: WebAssembly.Module): Kernel {
  const { memory, distances, products } = new WebAssembly.Instance(module).exports as unknown as KernelExports;
  return {
    bytes: () => new Uint8Array(memory.buffer),
    reserve(length) {
      const missing = Math.ceil((length - memory.buffer.byteLength) / PAGE_BYTES);
      if (missing > 0) memory.grow(missing);
    },
    distances,
    products,
  };
}

interface KernelExports extends Pick<Kernel, "distances" | "products"> {
  memory: { buffer: ArrayBuffer; grow(pages: number): number };
}

/** The same without WebAssembly, four to twelve times slower. */
export function plainKernel(): Kernel {
  let memory = new Uint8Array(PAGE_BYTES);
  return {
    bytes: () => memory,
    reserve(length) {
      if (length <= memory.length) return;
      const longer = new Uint8Array(Math.ceil(length / PAGE_BYTES) * PAGE_BYTES);
      longer.set(memory);
      memory = longer;
    },
    distances(query, codes, count, blocks, out) {
      const words = new Uint32Array(memory.buffer);
      const found = new Uint16Array(memory.buffer, out, count);
      const length = (blocks * BLOCK_BYTES) / 4;
      for (let index = 0, at = codes / 4; index < count; index += 1) {
        let distance = 0;
        for (let word = 0; word < length; word += 1, at += 1) {
          distance += bitsIn((words[query / 4 + word] ?? 0) ^ (words[at] ?? 0));
        }
        found[index] = distance;
      }
    },
    products(query, vectors, count, blocks, out) {
      const elements = new Int8Array(memory.buffer);
      const found = new Int32Array(memory.buffer, out, count);
      const length = blocks * BLOCK_BYTES;
      for (let index = 0, at = vectors; index < count; index += 1) {
        let product = 0;
        for (let element = 0; element < length; element += 1, at += 1) {
          product += (elements[query + element] ?? 0) * (elements[at] ?? 0);
        }
        found[index] = product;
      }
    },
  };
}

/** The number of set bits of a 32-bit number (Warren, Hacker's Delight, 5-1). */
function bitsIn(word: number): number {
  const pairs = word - ((word >>> 1) & 0x55555555);
  const fours = (pairs & 0x33333333) + ((pairs >>> 2) & 0x33333333);
  return Math.imul((fours + (fours >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}
