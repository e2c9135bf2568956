import { runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { carriedOf } from "../../src/store/home/carried-home.ts";
import type { HeldLease } from "../../src/store/home/conversation-lock.ts";
import type { ConversationTurns } from "../../src/store/home/conversation-turns.ts";
import { ReaderCount } from "../../src/store/home/event-reader.ts";
import type { Home } from "../../src/store/home/home.ts";
import type { RunHost } from "../../src/store/home/run-host.ts";
import { takeCarried } from "../../src/store/objects/owned-object.ts";
import { setOwnership } from "../../src/store/objects/ownership.ts";

/** The part of a home that passes from one process to the next in memory. */

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date"] });
});
afterEach(() => {
  vi.useRealTimers();
});

const runs = { freeze: () => ({}) } as unknown as RunHost;

describe("a reader of a run", () => {
  it("that has not gone on in a process goes on in the one after it", async () => {
    const first = new ReaderCount();
    first.follow("reader", async () => 7);
    const second = new ReaderCount();
    void second.restore(await first.stop());
    const third = new ReaderCount();
    void third.restore(await second.stop());
    expect(third.takeLeft("reader")).toBe(7);
    expect(third.takeLeft("reader")).toBeUndefined();
  });

  it("keeps its object from ending until it has gone on: its position is nowhere else", async () => {
    const stub = env.HOME.getByName(`tenant:${newTurnAddress().home}`) as DurableObjectStub<Home>;
    await runInDurableObject(stub, async (home) => {
      expect(home.isIdle).toBe(true);
      await home.takeOver({ access: {}, lease: undefined, readers: { reader: 7 } });
      expect(home.isIdle).toBe(false);
    });
    const readers = new ReaderCount();
    let isOver = false;
    const over = readers.restore({ one: 1, other: 2 }).then(() => (isOver = true));
    readers.takeLeft("one");
    await Promise.resolve();
    expect(isOver).toBe(false);
    readers.takeLeft("other");
    await over;
  });

  it("is forgotten after a minute", async () => {
    const first = new ReaderCount();
    first.follow("reader", async () => 7);
    const second = new ReaderCount();
    void second.restore(await first.stop());
    vi.setSystemTime(Date.now() + 60_000);
    expect(await second.stop()).toEqual({});
  });
});

describe("a foreground turn's hold of its conversation", () => {
  it("is not carried if the turn ends while the readers end", async () => {
    let held: HeldLease | undefined = { ticket: "turn", base: 0 };
    const conversation = { held: () => held } as unknown as ConversationTurns;
    const readers = new ReaderCount();
    readers.follow("reader", async () => {
      held = undefined;
      return 7;
    });
    expect(await carriedOf({ runs, conversation, readers })).toMatchObject({
      lease: undefined,
      readers: { reader: 7 },
    });
  });

  it("is carried if the alarm of its home rings while the process closes its objects", async () => {
    const stub = env.HOME.getByName(`tenant:${newTurnAddress().home}`) as DurableObjectStub<Home>;
    await stub.createConversation("conv", "first", {}, "[]");
    const lease = { ticket: "ticket", base: 0 };
    await runInDurableObject(stub, async (home, { storage }) => {
      await home.takeOver({ access: {}, lease, readers: {} });
      await storage.setAlarm(Date.now() + 60_000);
    });
    takeCarried();
    setOwnership("ending");
    try {
      await runDurableObjectAlarm(stub).catch(() => {});
      expect(takeCarried()).toMatchObject([{ state: { lease } }]);
    } finally {
      setOwnership("owns");
    }
  });

  it("ends with a repeated settlement, too", async () => {
    const stub = env.HOME.getByName(`tenant:${newTurnAddress().home}`) as DurableObjectStub<Home>;
    await stub.createConversation("conv", "first", {}, "[]");
    const turn = {
      ...{
        turn: "turn",
        parent: null,
        createdAt: Date.now(),
        input: "[]",
        output: "[]",
        messages: null,
        response: "{}",
      },
      lease: { token: "ticket", joins: true },
    };
    const holds = { ticket: "ticket", base: 0 };
    await runInDurableObject(stub, (home) => home.takeOver({ access: {}, lease: holds, readers: {} }));
    expect(await stub.settle(turn)).toEqual({ ok: true, value: 1 });
    // Its process has died after the row was written, and before the lease was released.
    await runInDurableObject(stub, (home) => home.takeOver({ access: {}, lease: holds, readers: {} }));
    expect(await stub.settle(turn)).toEqual({ ok: true, value: 0 });
    expect(await stub.addConversationItems("conv", "next", "[]", "other", 0)).toMatchObject({ ok: true });
  });
});
