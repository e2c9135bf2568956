import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import {
  DecompressionFault,
  Decompressor,
  type Encoding,
  FREE_BYTES,
} from "@responses-edge/bounded-io/body/decompressor";
import { describe, expect, it } from "vitest";

const COMPRESS = {
  gzip: gzipSync,
  "x-gzip": gzipSync,
  deflate: deflateSync,
  br: brotliCompressSync,
  zstd: zstdCompressSync,
} as const satisfies Record<Encoding, (bytes: Uint8Array) => Uint8Array>;

/** Decompresses these bytes, in pieces of `size`. */
async function decompress(encoding: Encoding, bytes: Uint8Array, onLength = (_: number) => {}, size = 100) {
  using decompressor = new Decompressor(encoding, onLength);
  for (let at = 0; at < bytes.length; at += size) await decompressor.write(bytes.slice(at, at + size));
  return new TextDecoder().decode(await decompressor.end());
}

describe.each(Object.keys(COMPRESS) as Encoding[])("%s", (encoding) => {
  const text = Array.from({ length: 2_000 }, (_, index) => `line ${index * 7_919}`).join("\n");
  const bytes = COMPRESS[encoding](new TextEncoder().encode(text));

  it("is decompressed as it arrives, and its length is known", async () => {
    let told = 0;
    expect(await decompress(encoding, bytes, (length) => (told = length))).toBe(text);
    expect(told).toBe(text.length);
  });

  it("is refused if it is invalid, ends too early, or expands too much", async () => {
    const none = decompress(encoding, new TextEncoder().encode("no such data at all"));
    await expect(none).rejects.toEqual(new DecompressionFault("malformed"));
    await expect(decompress(encoding, bytes.slice(0, -8))).rejects.toMatchObject({ kind: "malformed" });
    const bomb = COMPRESS[encoding](new Uint8Array(2 * FREE_BYTES));
    await expect(decompress(encoding, bomb, undefined, bomb.length)).rejects.toMatchObject({ kind: "ratio" });
  });

  it("ends with the error of its reader", async () => {
    const refusal = new Error("Enough.");
    const refused = decompress(encoding, bytes, () => {
      throw refusal;
    });
    await expect(refused).rejects.toBe(refusal);
  });
});
