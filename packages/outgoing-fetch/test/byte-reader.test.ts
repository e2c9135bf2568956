import { type ByteReader, readerOf } from "@responses-edge/outgoing-fetch/socket";
import { describe, expect, it } from "vitest";

describe("a reader", () => {
  const bytes = Uint8Array.from({ length: 50_000 }, (_, index) => index % 251);
  /** The bytes in pieces of these sizes, again and again. */
  function pieces(sizes: readonly number[]) {
    const cut: Uint8Array[] = [];
    for (let at = 0; at < bytes.length; at += cut.at(-1)?.length ?? 1) {
      cut.push(bytes.slice(at, at + (sizes[cut.length % sizes.length] ?? 1)));
    }
    return cut;
  }

  async function readAll(reader: ByteReader) {
    const got: number[] = [];
    for (;;) {
      const read = await reader.read();
      if (read.length === 0) return got;
      got.push(...read);
    }
  }

  it.each([
    ["of bytes that the runtime streams", () => new Response(bytes.slice()).body],
    [
      "of a stream of JavaScript's",
      () => {
        const left = pieces([1, 700, 0, 4096, 3]);
        return new ReadableStream({
          pull(controller) {
            const piece = left.shift();
            if (piece) controller.enqueue(piece);
            else controller.close();
          },
        });
      },
    ],
  ])("%s gives all of them", async (_, open) => {
    const body = open() as ReadableStream<Uint8Array>;
    expect(Uint8Array.from(await readAll(readerOf(body)))).toEqual(bytes);
  });
});
