import type { Connection, HttpAnswer } from "@responses-edge/outgoing-fetch/socket";
import {
  ChunkedFraming,
  endOfHead,
  Http1Error,
  MAX_HEAD_BYTES,
  parseHead,
  readerOf,
  requestText,
  socketFetch,
} from "@responses-edge/outgoing-fetch/socket";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

/** The socket transport's reading of HTTP/1.1: by bytes, in any pieces, from any server. */

const encode = (text: string) => Uint8Array.from(text, (character) => character.charCodeAt(0));
const decode = (bytes: Uint8Array) => String.fromCharCode(...bytes);

/** A server's side of a connection: its bytes, read by read, and then its end or its loss. */
function connectionOf(reads: readonly Uint8Array[], end: "closed" | "lost" | "open" = "closed") {
  const seen = { closed: 0, sent: "" };
  const left = reads.filter((read) => read.length > 0);
  const { promise: over, resolve: finish } = Promise.withResolvers<void>();
  const readable = new ReadableStream({
    type: "bytes",
    async pull(controller) {
      const next = left.shift();
      if (next) return controller.enqueue(next.slice());
      if (end === "open") await over;
      if (end === "lost") return controller.error(new Error("Network connection lost."));
      controller.close();
      controller.byobRequest?.respond(0);
    },
  });
  const writable = new WritableStream({
    write(chunk: Uint8Array) {
      seen.sent += decode(chunk);
    },
  });
  const close = async () => {
    seen.closed += 1;
    finish();
  };
  return { seen, connection: { readable, writable, close } as Connection };
}

interface Asked {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
  signal?: AbortSignal;
}

function ask({ connection }: ReturnType<typeof connectionOf>, asked: Asked = {}, url = "http://vllm:8000/v1/models") {
  const { method = "GET", headers = {}, signal = new AbortController().signal, body } = asked;
  return socketFetch(url, { method, headers, body, signal }, { connect: () => connection });
}

/** Reads a body to its end, or to the loss of its connection. */
async function readAll(answer: HttpAnswer): Promise<{ text: string; error?: Error }> {
  let text = "";
  const reader = readerOf(answer);
  if (!reader) return { text };
  try {
    for (;;) {
      const bytes = await reader.read();
      text += decode(bytes);
      if (bytes.length === 0) return { text };
    }
  } catch (error) {
    return { text, error: error as Error };
  }
}

function cutAt(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const at = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  return at.slice(1).map((end, index) => bytes.slice(at[index], end));
}

const cuts = fc.oneof(
  fc.array(fc.nat(10_000), { maxLength: 30 }),
  fc.constant(Array.from({ length: 3_000 }, (_, index) => index)),
);

interface Chunk {
  text: string;
  extension: string;
}

const chunk = fc.record({
  text: fc.string({ unit: "binary-ascii", minLength: 1, maxLength: 300 }),
  extension: fc.constantFrom("", "", ";", ";a=b", ' ; q="x;y"', "\t"),
});
const trailers = fc.constantFrom("", "x-checksum: 1\r\n", "a: b\r\nc: d\r\n");
const framed = (chunks: readonly Chunk[], trailer = "") =>
  `${chunks.map(({ text, extension }) => `${text.length.toString(16)}${extension}\r\n${text}\r\n`).join("")}0\r\n${trailer}\r\n`;

const HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";

describe("a chunked body", () => {
  it("is the same for any chunking, without extensions and trailers", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(chunk, { maxLength: 12 }),
        trailers,
        cuts,
        fc.constantFrom("", "connection: close\r\n"),
        async (chunks, trailer, at, header) => {
          const bytes = encode(`${HEAD}${header}transfer-encoding: chunked\r\n\r\n${framed(chunks, trailer)}`);
          const server = connectionOf(cutAt(bytes, at));
          const answer = await readAll(await ask(server));
          expect(answer).toEqual({ text: chunks.map(({ text }) => text).join("") });
          expect(server.seen.closed).toBeGreaterThan(0);
        },
      ),
    );
  });

  it("that its connection breaks off is lost after the received part", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(chunk, { minLength: 1, maxLength: 5 }),
        fc.nat(10_000),
        fc.constantFrom("closed", "lost"),
        async (chunks, at, end) => {
          const body = framed(chunks);
          const bytes = encode(`${HEAD}transfer-encoding: chunked\r\n\r\n${body.slice(0, at % body.length)}`);
          const { text, error } = await readAll(await ask(connectionOf([bytes], end)));
          const whole = chunks.map((each) => each.text).join("");
          expect(error).toBeInstanceOf(Error);
          expect(whole.startsWith(text)).toBe(true);
        },
      ),
    );
  });

  it("that is whole ends, though its server keeps the connection", async () => {
    const body = framed([{ text: "hello", extension: "" }]);
    for (const head of [`${HEAD}transfer-encoding: chunked\r\n\r\n`, `${HEAD}Transfer-Encoding: Chunked\r\n\r\n`]) {
      const server = connectionOf([encode(head), encode(body)], "open");
      expect(await readAll(await ask(server))).toEqual({ text: "hello" });
      expect(server.seen.closed).toBeGreaterThan(0);
    }
  });

  it.each<[what: string, body: string]>([
    ["no size", "\r\nhello\r\n0\r\n\r\n"],
    ["a size that is none", "5x\r\nhello\r\n0\r\n\r\n"],
    ["a negative size", "-5\r\nhello\r\n0\r\n\r\n"],
    ["a size with 0x", "0x5\r\nhello\r\n0\r\n\r\n"],
    ["a size above 2^53", "20000000000001\r\nhello"],
    ["a size that overflows", "fffffffffffffffff1\r\nhello"],
    ["a size without an end", "0".repeat(5_000)],
    ["an extension without an end", `5;${"x".repeat(5_000)}`],
    ["a line feed alone behind the size", "5\nhello\r\n0\r\n\r\n"],
    ["a line feed in an extension", "5;a\nb\r\nhello\r\n0\r\n\r\n"],
    ["a carriage return alone", "5\rhello\r\n0\r\n\r\n"],
    ["more than its size", "5\r\nhello!\r\n0\r\n\r\n"],
    ["less than its size", "6\r\nhello\r\n0\r\n\r\n"],
    ["trailers without an end", `0\r\n${"a: b\r\n".repeat(5_000)}`],
    ["a trailer with a line feed alone", "0\r\na: b\n\r\n"],
  ])("with %s is broken", async (_what, body) => {
    const server = connectionOf([encode(`${HEAD}transfer-encoding: chunked\r\n\r\n${body}`)], "open");
    expect((await readAll(await ask(server))).error).toBeInstanceOf(Http1Error);
    expect(server.seen.closed).toBeGreaterThan(0);
  });

  it("of any bytes ends, or is refused, and gives no byte that was not sent", () => {
    const bytes = fc.oneof(fc.uint8Array({ maxLength: 200 }), fc.stringMatching(/^[0-9a-f;x\r\n]{0,60}$/).map(encode));
    fc.assert(
      fc.property(bytes, (sent) => {
        const framing = new ChunkedFraming();
        try {
          expect(framing.unframe(sent.slice()).length).toBeLessThanOrEqual(sent.length);
        } catch (error) {
          expect(error).toBeInstanceOf(Http1Error);
        }
      }),
      { numRuns: 500 },
    );
  });
});

describe("another body", () => {
  it("has the length of its content-length, for any chunking and any bytes after it", async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: "binary-ascii", maxLength: 500 }), cuts, fc.nat(5), async (text, at, more) => {
        const bytes = encode(`${HEAD}content-length: ${text.length}\r\n\r\n${text}${"x".repeat(more)}`);
        expect(await readAll(await ask(connectionOf(cutAt(bytes, at))))).toEqual({ text });
      }),
    );
  });

  it("that is shorter than its content-length is lost", async () => {
    const bytes = encode(`${HEAD}content-length: 10\r\n\r\nhello`);
    expect(await readAll(await ask(connectionOf([bytes])))).toMatchObject({ text: "hello", error: expect.any(Error) });
  });

  it("without a length lasts until the connection is closed, and is lost with it", async () => {
    const reads = [encode(`${HEAD}\r\nhel`), encode("lo")];
    expect(await readAll(await ask(connectionOf(reads)))).toEqual({ text: "hello" });
    const lost = connectionOf(reads, "lost");
    expect(await readAll(await ask(lost))).toMatchObject({ text: "hello", error: expect.any(Error) });
  });

  it.each([
    ["HEAD", 200],
    ["GET", 204],
    ["GET", 205],
    ["GET", 304],
  ])("there is none to %s with %i", async (method, status) => {
    const server = connectionOf([encode(`HTTP/1.1 ${status} X\r\ncontent-length: 5\r\n\r\n`)], "open");
    expect(await readAll(await ask(server, { method }))).toEqual({ text: "" });
    expect(server.seen.closed).toBeGreaterThan(0);
  });

  it("is a stream for who wants one", async () => {
    const bytes = encode(`${HEAD}transfer-encoding: chunked\r\n\r\n${framed([{ text: '{"a":1}', extension: "" }])}`);
    const response = await ask(connectionOf([bytes]));
    expect(await new Response(response.body).json()).toEqual({ a: 1 });
  });
});

describe("a head", () => {
  it("is the same for any chunking, also after interim ones", async () => {
    await fc.assert(
      fc.asyncProperty(cuts, fc.nat(3), async (at, interim) => {
        const before = "HTTP/1.1 100 Continue\r\nx: y\r\n\r\n".repeat(interim);
        const bytes = encode(`${before}HTTP/1.1 429 Too Many\r\nRetry-After:  7 \r\ncontent-length: 2\r\n\r\n{}`);
        const response = await ask(connectionOf(cutAt(bytes, at)));
        expect({ status: response.status, after: response.headers.get("retry-after") }).toEqual({
          status: 429,
          after: "7",
        });
        expect(await readAll(response)).toEqual({ text: "{}" });
      }),
    );
  });

  it.each<[what: string, head: string]>([
    ["no HTTP", "SSH-2.0-OpenSSH_9.6\r\n\r\n"],
    ["HTTP/2", "HTTP/2 200\r\n\r\n"],
    ["no status", "HTTP/1.1 OK\r\n\r\n"],
    ["a status of two digits", "HTTP/1.1 20 OK\r\n\r\n"],
    ["a status of 600", "HTTP/1.1 600 OK\r\n\r\n"],
    ["an upgrade", "HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n"],
    ["a header without a colon", `${HEAD}hello\r\n\r\n`],
    ["a header without a name", `${HEAD}: hello\r\n\r\n`],
    ["a space before the colon", `${HEAD}content-length : 5\r\n\r\n`],
    ["a folded header", `${HEAD}a: b\r\n c\r\n\r\n`],
    ["a NUL", `${HEAD}a: b\0c\r\n\r\n`],
    ["a line feed alone", `${HEAD}a: b\nc: d\r\n\r\n`],
    ["a carriage return alone", `${HEAD}a: b\rc\r\n\r\n`],
    ["two lengths", `${HEAD}content-length: 5\r\ncontent-length: 6\r\n\r\n`],
    ["a negative length", `${HEAD}content-length: -5\r\n\r\n`],
    ["a length with a sign", `${HEAD}content-length: +5\r\n\r\n`],
    ["a length above 2^53", `${HEAD}content-length: 99999999999999999999\r\n\r\n`],
    ["a length and chunks", `${HEAD}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n`],
    ["a coding beside chunked", `${HEAD}transfer-encoding: gzip, chunked\r\n\r\n`],
    ["chunks twice", `${HEAD}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n`],
    ["chunks in HTTP/1.0", "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"],
    ["a content coding", `${HEAD}content-encoding: gzip\r\n\r\n`],
    ["too many headers", `${HEAD}${"a: b\r\n".repeat(300)}\r\n`],
    ["nothing behind an interim one", "HTTP/1.1 100 Continue\r\n\r\n\r\n\r\n"],
    ["no end", `${HEAD}a: ${"b".repeat(MAX_HEAD_BYTES)}`],
    ["interim answers without an end", "HTTP/1.1 102 Processing\r\n\r\n".repeat(5_000)],
  ])("with %s is refused, and its connection closed", async (_what, head) => {
    const server = connectionOf([encode(head)], "open");
    await expect(ask(server)).rejects.toBeInstanceOf(Http1Error);
    expect(server.seen.closed).toBeGreaterThan(0);
  });

  it("that is cut off is refused", async () => {
    const head = `${HEAD}\r\n`;
    for (let length = 0; length < head.length; length += 1) {
      await expect(ask(connectionOf([encode(head.slice(0, length))]))).rejects.toBeInstanceOf(Http1Error);
    }
  });

  it("of any bytes is read or refused, in linear time", () => {
    const line = fc.oneof(
      fc.string({ unit: "binary-ascii", maxLength: 40 }),
      fc.constantFrom("HTTP/1.1 200 OK", "a: b", "content-length: 5", `a:${" ".repeat(60_000)}\0`),
    );
    fc.assert(
      fc.property(fc.array(line, { maxLength: 6 }), (lines) => {
        const bytes = encode(`${lines.join("\r\n")}\r\n\r\n`);
        const end = endOfHead(bytes, 0);
        try {
          parseHead(bytes.subarray(0, end), "GET");
        } catch (error) {
          expect(error).toBeInstanceOf(Http1Error);
        }
      }),
    );
  });
});

describe("a request", () => {
  const text = (headers: Record<string, string>, body?: string, url = "http://vllm:8000/v1/x?y=z") =>
    requestText("POST", new URL(url), headers, body);

  it("says its host, how long its body is in bytes, and that its connection is used once", () => {
    expect(text({ accept: "text/event-stream" }, '"Grüße"')).toBe(
      "POST /v1/x?y=z HTTP/1.1\r\nhost: vllm:8000\r\naccept: text/event-stream\r\naccept-encoding: identity\r\n" +
        'connection: close\r\ncontent-length: 9\r\n\r\n"Grüße"',
    );
    expect(text({})).not.toContain("content-length");
  });

  it.each([
    ["http://[::1]:8000/v1", "[::1]:8000"],
    ["https://vllm.example.com/v1", "vllm.example.com"],
    ["http://vllm:80/v1", "vllm"],
  ])("to %s has the host %s", (url, host) => {
    expect(text({}, undefined, url)).toContain(`\r\nhost: ${host}\r\n`);
  });

  it.each<[what: string, headers: Record<string, string>]>([
    ["a line break in a value", { "x-session-id": "a\r\nhost: evil" }],
    ["a line feed in a value", { "x-session-id": "a\nb" }],
    ["a NUL in a value", { "x-session-id": "a\0b" }],
    ["a letter that no header has", { "x-session-id": "é" }],
    ["a line break in a name", { "a\r\nb": "c" }],
    ["a name of nothing", { "": "c" }],
  ])("with %s is not sent", async (_what, headers) => {
    expect(() => text(headers)).toThrow(Http1Error);
    const server = connectionOf([], "open");
    await expect(ask(server, { headers })).rejects.toBeInstanceOf(Http1Error);
    expect(server.seen.sent).toBe("");
  });

  it("that is aborted is not sent, and one that waits is given up at once, with the signal's reason", async () => {
    const reason = new Error("left");
    const early = connectionOf([], "open");
    await expect(ask(early, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect(early.seen.sent).toBe("");
    const waiting = connectionOf([encode("HTTP/1.1 2")], "open");
    const controller = new AbortController();
    const answer = ask(waiting, { signal: controller.signal });
    controller.abort(reason);
    await expect(answer).rejects.toBe(reason);
    expect(waiting.seen.closed).toBeGreaterThan(0);
  });

  it("that is aborted in the middle of its answer closes the connection", async () => {
    const server = connectionOf([encode(`${HEAD}content-length: 10\r\n\r\nhello`)], "open");
    const controller = new AbortController();
    const response = await ask(server, { signal: controller.signal });
    expect(server.seen.closed).toBe(0);
    controller.abort();
    expect(server.seen.closed).toBe(1);
    expect(response.status).toBe(200);
  });

  it("with an unwanted answer closes the connection", async () => {
    const server = connectionOf([encode(`${HEAD}content-length: 10\r\n\r\nhello`)], "open");
    await (await ask(server)).body?.cancel();
    expect(server.seen.closed).toBeGreaterThan(0);
  });
});
