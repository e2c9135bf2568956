import { concatBytes, linesOf, ReadFault, readBounded, readBoundedText } from "@responses-edge/bounded-io/body";
import { describe, expect, it } from "vitest";

const bytes = (text: string) => new Uint8Array(new TextEncoder().encode(text));

/** A body of these chunks, which then ends, breaks or goes on for ever; and the reason for which it was cancelled. */
function bodyOf(chunks: readonly string[], then: "ends" | "breaks" | "hangs" = "ends") {
  const left = [...chunks];
  const seen: { cancelled?: boolean } = {};
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      const next = left.shift();
      if (next !== undefined) controller.enqueue(bytes(next));
      else if (then === "ends") controller.close();
      else if (then === "breaks") controller.error(new Error("gone"));
      else return new Promise<void>(() => {});
      return undefined;
    },
    cancel() {
      seen.cancelled = true;
    },
  });
  return { body, seen };
}

const bounds = { maxBytes: 8, timeoutMs: 60_000, signal: new AbortController().signal };

async function faultOf(promise: Promise<unknown>): Promise<ReadFault["kind"]> {
  const error: unknown = await promise.catch((reason: unknown) => reason);
  if (!(error instanceof ReadFault)) throw new Error(`No ReadFault: ${String(error)}`);
  return error.kind;
}

describe("a body", () => {
  it("is read to its end, also where a character is in two chunks", async () => {
    const [first = new Uint8Array(), second = new Uint8Array()] = [bytes("aé").subarray(0, 2), bytes("aé").subarray(2)];
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(first);
        controller.enqueue(second);
        controller.close();
      },
    });
    expect(await readBoundedText(new Response(body), bounds)).toBe("aé");
    expect(await readBounded(new Response(null), bounds)).toHaveLength(0);
  });

  it("of exactly as many bytes as are allowed is read; one of more is not, and its rest is cancelled", async () => {
    expect(await readBoundedText(new Response(bodyOf(["1234", "5678"]).body), bounds)).toBe("12345678");
    const { body, seen } = bodyOf(["1234", "56789"], "hangs");
    expect(await faultOf(readBounded(new Response(body), bounds))).toBe("too_large");
    expect(seen.cancelled).toBe(true);
  });

  it("that announces too much is not read at all", async () => {
    const response = new Response(bodyOf(["1"]).body, { headers: { "content-length": "9" } });
    expect(await faultOf(readBounded(response, bounds))).toBe("too_large");
  });

  it("whose connection breaks, or that takes too long, is a fault of that kind", async () => {
    expect(await faultOf(readBounded(new Response(bodyOf(["1"], "breaks").body), bounds))).toBe("lost");
    const late = bodyOf(["1"], "hangs");
    expect(await faultOf(readBounded(new Response(late.body), { ...bounds, timeoutMs: 1 }))).toBe("timeout");
    expect(late.seen.cancelled).toBe(true);
  });

  it("is left with the reason of its signal", async () => {
    const abort = new AbortController();
    const { body, seen } = bodyOf(["1"], "hangs");
    const reading = readBounded(new Response(body), { ...bounds, signal: abort.signal });
    abort.abort(new Error("the client has left"));
    await expect(reading).rejects.toThrow("the client has left");
    expect(seen.cancelled).toBe(true);
    const aborted = AbortSignal.abort(new Error("too late"));
    await expect(readBounded(new Response("1"), { ...bounds, signal: aborted })).rejects.toThrow("too late");
  });
});

describe("lines", () => {
  async function linesIn(chunks: readonly string[], most = 8): Promise<string[]> {
    const lines: string[] = [];
    async function* sent() {
      // One buffer for all chunks, as readers have it.
      const buffer = new Uint8Array(64);
      for (const chunk of chunks) {
        buffer.set(bytes(chunk));
        yield buffer.subarray(0, chunk.length);
      }
    }
    for await (const line of linesOf(sent(), most)) lines.push(new TextDecoder().decode(line));
    return lines;
  }

  it("are those between line breaks, however they are cut", async () => {
    const text = "one\n\ntwo\nthree";
    const expected = ["one", "two", "three"];
    for (let cut = 0; cut <= text.length; cut += 1) {
      expect(await linesIn([text.slice(0, cut), text.slice(cut)])).toEqual(expected);
    }
    expect(await linesIn([...text])).toEqual(expected);
  });

  it("that are too long are refused, also before their end has come", async () => {
    expect(await linesIn(["12345678\n1"])).toEqual(["12345678", "1"]);
    expect(await faultOf(linesIn(["123456789\n"]))).toBe("too_large");
    expect(await faultOf(linesIn(["1234", "56789"]))).toBe("too_large");
  });
});

it("chunks become one array, and the only one stays itself", () => {
  const one = bytes("a");
  expect(concatBytes([one])).toBe(one);
  expect(concatBytes([one, bytes("bc")])).toEqual(bytes("abc"));
  expect(concatBytes([])).toHaveLength(0);
});
