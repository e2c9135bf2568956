import { afterEach, beforeEach, expect, it, vi } from "vitest";

// With an isolate's room of their own: other tests of this isolate hold something, too.
vi.resetModules();
const { readJson } = await import("../../../src/http/body.ts");
const { enterTurn } = await import("../../../src/store/isolate-room.ts");

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const SENDER = { tenant: "tenant", config: { maxRequestBytes: 1024 * 1024, maxOpenTurns: 4 } };

it("a body that does not come is a 408, and its places are free again", async () => {
  let client: ReadableStreamDefaultController<Uint8Array> | undefined;
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      client = controller;
    },
  });
  const headers = { "content-type": "application/json" };
  const request = new Request("http://gateway/", { method: "POST", headers, body });
  const reading = readJson(request, SENDER);
  const refused = expect(reading).rejects.toMatchObject({ status: 408, code: "request_timeout" });
  client?.enqueue(new Uint8Array(300 * 1024));
  await vi.waitFor(() => expect(() => enterTurn(SENDER, 0)).toThrow(expect.objectContaining({ status: 503 })));
  await vi.advanceTimersByTimeAsync(300_000);
  await refused;
  enterTurn(SENDER, 0)[Symbol.dispose]();
});
