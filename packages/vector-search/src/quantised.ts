import { BLOCK_BYTES, type Kernel } from "./kernel.ts";

/**
 * Embeddings in fewer bytes: a code of a bit for each dimension to compare all, and eight bits for each to compare the
 * best.
 */

/** The maximum dimensions of an embedding. */
export const MAX_DIMENSIONS = 8_192;

/** The bytes of a code with this many dimensions. */
export function codeBytes(dimensions: number): number {
  return Math.ceil(dimensions / (8 * BLOCK_BYTES)) * BLOCK_BYTES;
}

/** The signs of an embedding's elements. */
export function toCode(embedding: ArrayLike<number>): Uint8Array<ArrayBuffer> {
  const code = new Uint8Array(codeBytes(embedding.length));
  for (let index = 0; index < embedding.length; index += 1) {
    if ((embedding[index] ?? 0) > 0) code[index >> 3] = (code[index >> 3] ?? 0) | (1 << (index & 7));
  }
  return code;
}

/**
 * The elements as whole numbers up to 127, which the largest one has: their length is lost, which cosines do not need.
 */
export function toInt8(embedding: ArrayLike<number>): Int8Array<ArrayBuffer> {
  const vector = new Int8Array(Math.ceil(embedding.length / BLOCK_BYTES) * BLOCK_BYTES);
  let largest = 0;
  for (let index = 0; index < embedding.length; index += 1) {
    largest = Math.max(largest, Math.abs(embedding[index] ?? 0));
  }
  if (largest === 0) return vector;
  for (let index = 0; index < embedding.length; index += 1) {
    vector[index] = Math.round(((embedding[index] ?? 0) / largest) * 127);
  }
  return vector;
}

/** The positions of the results and the vectors in the kernel's memory, after the query. */
const OUT = MAX_DIMENSIONS;
const VECTORS = 2 * MAX_DIMENSIONS;

/** The cosines between a vector and others of its length, in their order; 0 for one without direction. */
export function cosines(kernel: Kernel, query: Int8Array, vectors: readonly Int8Array[]): number[] {
  const { length } = query;
  const blocks = length / BLOCK_BYTES;
  kernel.reserve(VECTORS + length);
  const product = (one: Int8Array, other: Int8Array) => {
    const memory = kernel.bytes();
    memory.set(asBytes(one), 0);
    memory.set(asBytes(other), VECTORS);
    kernel.products(0, VECTORS, 1, blocks, OUT);
    return new Int32Array(memory.buffer, OUT, 1)[0] ?? 0;
  };
  const own = product(query, query);
  return vectors.map((vector) => {
    if (vector.length !== length) return 0;
    const norm = Math.sqrt(own) * Math.sqrt(product(vector, vector));
    return norm === 0 ? 0 : product(query, vector) / norm;
  });
}

function asBytes({ buffer, byteOffset, byteLength }: Int8Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}
