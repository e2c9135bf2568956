import { afterEach, describe, expect, it } from "vitest";
import { type ByteReader, readerOf } from "../../src/engine/byte-reader.ts";
import { ReadSize, type ReadSizeOptions, sawLateness } from "../../src/engine/read-size.ts";

/** A chunk of vLLM's with one token, in bytes. */
const TOKEN = 280;

/** So many timers of many streams were late, one each millisecond from `from` on; gives when the last one was. */
function timers(count: number, lateMs: number, from = 0): number {
  for (let at = 0; at < count; at += 1) sawLateness(lateMs, from + at);
  return from + count;
}
afterEach(() => void sawLateness(0, Number.MAX_SAFE_INTEGER));

/** Reads tokens that arrive at these times, in milliseconds since the request. Gives how many each read waited for. */
function reads(
  arrivals: readonly number[],
  options: Partial<ReadSizeOptions> = {},
  hiccup?: [from: number, to: number],
) {
  const size = new ReadSize({ since: 0, ...options });
  const counts: number[] = [];
  let now = 0;
  for (let at = 0; at < arrivals.length; ) {
    const wanted = Math.min(Math.ceil(size.next / TOKEN), arrivals.length - at);
    at += wanted;
    const asked = Math.floor(now);
    now = Math.max(now, arrivals[at - 1] ?? 0);
    if (hiccup && now >= hiccup[0] && now < hiccup[1]) now = hiccup[1];
    counts.push(wanted);
    size.saw(wanted * TOKEN, asked, Math.floor(now));
  }
  return { counts, size };
}

/** The times of tokens that come every so many milliseconds, after a prefill. */
const paced = (count: number, everyMs: number, firstMs = 100) =>
  Array.from({ length: count }, (_, index) => firstMs + index * everyMs);

describe("how much is read at once of a stream that somebody watches", () => {
  it.each([3.5, 5, 10, 20, 100, 2000])("is one token where one comes every %d ms", (everyMs) => {
    expect(new Set(reads(paced(500, everyMs)).counts)).toEqual(new Set([1]));
  });

  it("is one token also of what has piled up while the thread was busy", () => {
    const { counts } = reads(paced(500, 20), {}, [2_000, 3_000]);
    expect(new Set(counts)).toEqual(new Set([1]));
  });

  it("is one token also where the thread was busy from the beginning", () => {
    const { counts } = reads(paced(500, 20), {}, [0, 1_000]);
    expect(new Set(counts)).toEqual(new Set([1]));
  });

  it("is 16 kB at most of a flood, after its first eight tokens one by one", () => {
    const { counts } = reads(paced(2_000, 0.01, 1));
    expect(counts.slice(0, 8)).toEqual([1, 1, 1, 1, 1, 1, 1, 1]);
    expect(Math.max(...counts)).toBe(Math.ceil((16 * 1024) / TOKEN));
  });

  it("is one token again after a pause, once the read that waited through it has ended", () => {
    const flood = paced(1_000, 0.05, 1);
    const { counts } = reads([...flood, ...paced(100, 20, 2_000)]);
    expect(new Set(counts.slice(-40))).toEqual(new Set([1]));
  });

  it("grows where the thread is late all the time, as long as there is as much", () => {
    timers(1_000, 100);
    const { counts } = reads(paced(1_000, 20));
    expect(Math.max(...counts)).toBeGreaterThan(4);
    expect(Math.max(...counts)).toBeLessThanOrEqual(2 * (200 / 20));
  });

  it.each([
    ["a single timer was late", () => timers(1, 100)],
    ["timers were late some time ago", () => sawLateness(0, timers(1_000, 100) + 1_000)],
    ["timers are late by less than anybody sees", () => timers(1_000, 9)],
  ])("is one token where %s", (_, late) => {
    late();
    expect(new Set(reads(paced(500, 20)).counts)).toEqual(new Set([1]));
  });
});

describe("how much is read at once of an answer that nobody gets before it is whole", () => {
  const asWhole = true;

  it("is the first word, and then what comes in a quarter of a second", () => {
    const { counts } = reads(paced(500, 20), { asWhole, pace: TOKEN / 20 });
    expect(counts[0]).toBe(1);
    expect(Math.max(...counts)).toBeLessThanOrEqual(13);
    expect(counts.length).toBeLessThan(100);
  });

  it("follows a server that has become slow", () => {
    const { counts } = reads(paced(200, 500), { asWhole, pace: 1_000 });
    expect(counts.slice(0, 2)).toEqual([1, 59]);
    expect(new Set(counts.slice(2))).toEqual(new Set([1]));
  });

  it("is never more than 16 kB", () => {
    const { size } = reads(paced(10_000, 0.01), { asWhole });
    expect(size.next).toBeLessThanOrEqual(16 * 1024);
  });
});

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

  /** All that it gives, and the sizes of the reads. */
  async function readAll(reader: ByteReader, least: readonly number[]) {
    const got: number[] = [];
    const sizes: number[] = [];
    for (let index = 0; ; index += 1) {
      const min = least[index % least.length] ?? 1;
      const read = await reader.read(min);
      got.push(...read);
      sizes.push(read.length);
      if (read.length < min) return { got, sizes };
      expect(read.length).toBeGreaterThanOrEqual(min);
    }
  }

  it.each([
    ["of bytes that the runtime streams", () => new Response(bytes.slice()).body],
    [
      "of a stream of JavaScript's",
      () => {
        const left = pieces([1, 700, 4096, 3]);
        return new ReadableStream({
          pull(controller) {
            const piece = left.shift();
            if (piece) controller.enqueue(piece);
            else controller.close();
          },
        });
      },
    ],
  ])("%s gives all of them, at least as many at a time as are asked for", async (_, open) => {
    const body = open() as ReadableStream<Uint8Array<ArrayBuffer>>;
    const { got, sizes } = await readAll(readerOf(body), [1, 300, 16_384, 5]);
    expect(Uint8Array.from(got)).toEqual(bytes);
    expect(sizes.length).toBeLessThan(60);
  });
});
