import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

// Modules of their own: other tests of this isolate hold permits, too.
vi.resetModules();
const { readForm, readJson, readLines } = await import("../../../src/http/body.ts");
const { Permits } = await import("../../../src/store/limits/permits.ts");

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const SENDER = { tenant: "tenant", config: { maxRequestBytes: 1024 * 1024, maxOpenTurns: 4 } };

/** A request whose body the test sends. */
function slowRequest(type: string, length?: number): [Request, ReadableStreamDefaultController<Uint8Array>] {
  let client: ReadableStreamDefaultController<Uint8Array> | undefined;
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      client = controller;
    },
  });
  if (!client) throw new Error("A stream has its controller at once.");
  const headers = { "content-type": type, ...(length !== undefined && { "content-length": String(length) }) };
  return [new Request("http://gateway/", { method: "POST", headers, body }), client];
}

const TOO_MANY = expect.objectContaining({ status: 429 });
const LATE = { status: 408, code: "request_timeout" };

/** Every way in which a body is read. */
const READERS: [string, string, number | undefined, (request: Request) => Promise<unknown>][] = [
  ["JSON", "application/json", undefined, (request) => readJson(request, SENDER)],
  ["short JSON", "application/json", 16 * 1024, (request) => readJson(request, SENDER)],
  ["a form", "multipart/form-data; boundary=b", undefined, (request) => readForm(request, SENDER)],
  ["JSON that is too long", "application/json", 2 * 1024 * 1024, (request) => readJson(request, SENDER)],
  [
    "lines",
    "application/jsonl",
    undefined,
    (request) => Array.fromAsync(readLines(request, { maxBytes: 2 ** 30, maxLineBytes: 2 ** 20 })),
  ],
];

describe.each(READERS)("%s", (name, type, length, read) => {
  it("that does not come ends", async () => {
    const [request, client] = slowRequest(type, length);
    const ended = expect(read(request)).rejects.toMatchObject(
      name === "JSON that is too long" ? { status: 413 } : LATE,
    );
    client.enqueue(new Uint8Array(100));
    await vi.advanceTimersByTimeAsync(30_000);
    await ended;
  });
});

it("a body may arrive at a kilobyte a second", async () => {
  const [request, client] = slowRequest("application/json");
  const reading = readJson(request, SENDER);
  client.enqueue(new TextEncoder().encode('"'));
  for (let second = 0; second < 60; second += 1) {
    client.enqueue(new Uint8Array(1024).fill(97));
    await vi.advanceTimersByTimeAsync(1000);
  }
  client.enqueue(new TextEncoder().encode('"'));
  client.close();
  expect(await reading).toEqual({ value: "a".repeat(60 * 1024), length: 60 * 1024 + 2 });
});

it("a body that is too slow for five minutes is ended", async () => {
  const [request, client] = slowRequest("application/json");
  const ended = expect(readJson(request, SENDER)).rejects.toMatchObject(LATE);
  for (let second = 0; second < 300; second += 1) {
    client.enqueue(new Uint8Array(1100));
    await vi.advanceTimersByTimeAsync(1000);
  }
  await ended;
});

it("waiting for the reader of lines does not count as the sender's slowness", async () => {
  const [request, client] = slowRequest("application/jsonl");
  const lines = readLines(request, { maxBytes: 2 ** 30, maxLineBytes: 2 ** 20 });
  client.enqueue(new TextEncoder().encode("1\n2\n"));
  await lines.next();
  await vi.advanceTimersByTimeAsync(600_000);
  client.close();
  expect(new TextDecoder().decode((await lines.next()).value ?? undefined)).toBe("2");
  expect((await lines.next()).done).toBe(true);
});

it("a body holds permits for its received bytes until it ends", async () => {
  const [request, client] = slowRequest("application/json", 1024 * 1024 - 1);
  const ended = expect(readJson(request, SENDER)).rejects.toMatchObject(LATE);
  await vi.advanceTimersByTimeAsync(0);
  // The announced length needs twelve permits.
  for (const turn of [new Permits("turn", SENDER, 0), new Permits("turn", SENDER, 0)]) turn[Symbol.dispose]();
  client.enqueue(new Uint8Array(200 * 1024));
  await vi.waitFor(() => expect(() => new Permits("turn", SENDER, 0)[Symbol.dispose]()).toThrow(TOO_MANY));
  await vi.advanceTimersByTimeAsync(20_000);
  await ended;
  new Permits("turn", SENDER, 0)[Symbol.dispose]();
});

it("a compressed body holds permits for its decompressed bytes", async () => {
  const [request, client] = slowRequest("application/json");
  request.headers.set("content-encoding", "gzip");
  const ended = expect(readJson(request, SENDER)).rejects.toMatchObject(LATE);
  // The body has the maximum decompressed length. Its end is missing.
  client.enqueue(gzipSync(new Uint8Array(200 * 1024)).subarray(0, -1));
  await vi.waitFor(() => expect(() => new Permits("turn", SENDER, 0)[Symbol.dispose]()).toThrow(TOO_MANY));
  await vi.advanceTimersByTimeAsync(20_000);
  await ended;
  new Permits("turn", SENDER, 0)[Symbol.dispose]();
});
