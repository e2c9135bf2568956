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
    expect(Uint8Array.from(await readAll(readerOf({ body }) as ByteReader))).toEqual(bytes);
  });

  it.each([[[1, 700, 4096, 3]], [[255]], [[9_000, 1]]])(
    "of a body that nobody sees before its end gives all of them, in fewer reads than it has pieces: of %j bytes",
    async (sizes) => {
      const { readable, writable } = new IdentityTransformStream();
      const sent = pieces(sizes);
      const send = async () => {
        const writer = writable.getWriter();
        for (const piece of sent) await writer.write(piece);
        await writer.close();
      };
      const sending = send();
      const reader = readerOf({ body: readable }, Date.now()) as ByteReader;
      let reads = 0;
      const read = () => {
        reads += 1;
        return reader.read();
      };
      expect(Uint8Array.from(await readAll({ read, cancel: () => {} }))).toEqual(bytes);
      await sending;
      expect(reads).toBeLessThan(Math.max(20, sent.length / 4));
    },
  );

  it("gives what came before a body broke off, also if nobody sees it before its end", async () => {
    const { readable, writable } = new IdentityTransformStream();
    const reader = readerOf({ body: readable }, Date.now()) as ByteReader;
    const writer = writable.getWriter();
    const sending = writer.write(bytes.slice(0, 500)).then(() => writer.abort(new Error("broken")));
    expect(await reader.read()).toEqual(bytes.slice(0, 500));
    await expect(reader.read()).rejects.toThrow("broken");
    await sending;
  });
});
