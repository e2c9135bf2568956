import { readerOf } from "@responses-edge/outgoing-fetch/socket";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

/** Bytes of a token, as a model server sends it. */
const TOKEN = new Uint8Array(400);

describe("a body that nobody sees before its end", () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ["Date"] }));
  afterEach(() => void vi.useRealTimers());

  it("is read token by token once it comes slowly, however fast and long it came before", async () => {
    const { readable, writable } = new IdentityTransformStream();
    const reader = readerOf({ body: readable }, Date.now());
    const writer = writable.getWriter();
    const send = async (tokens: number, everyMs: number) => {
      for (let count = 0; count < tokens; count += 1) {
        vi.setSystemTime(Date.now() + everyMs);
        await writer.write(TOKEN);
      }
    };
    const sending = send(1_000, 1)
      .then(() => send(40, 100))
      .then(() => writer.close());
    const lengths: number[] = [];
    for (let length = -1; length !== 0; lengths.push(length)) length = (await reader?.read())?.length ?? 0;
    await sending;
    expect(lengths.reduce((sum, length) => sum + length)).toBe(1_040 * TOKEN.length);
    // The last token, and the end.
    expect(lengths.slice(-9)).toEqual([...Array(8).fill(TOKEN.length), 0]);
    expect(lengths.length).toBeLessThan(200);
  });
});
