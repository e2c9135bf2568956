import { runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import { describe, expect, it } from "vitest";
import type { Home } from "../../src/store/home/home.ts";
import { takeCarried } from "../../src/store/objects/owned-object.ts";
import { setOwnership } from "../../src/store/objects/ownership.ts";

/** The part of a home that passes from one process to the next in memory. */

describe("a foreground turn's hold of its conversation", () => {
  it("is carried if the alarm of its home rings while the process closes its objects", async () => {
    const stub = env.HOME.getByName(`tenant:${newTurnAddress().home}`) as DurableObjectStub<Home>;
    await stub.createConversation("conv", "first", {}, "[]");
    const lease = { ticket: "ticket", base: 0 };
    await runInDurableObject(stub, async (home, { storage }) => {
      await home.takeOver({ access: {}, lease });
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
    await runInDurableObject(stub, (home) => home.takeOver({ access: {}, lease: holds }));
    expect(await stub.settle(turn)).toEqual({ ok: true, value: 1 });
    // Its process has died after the row was written, and before the lease was released.
    await runInDurableObject(stub, (home) => home.takeOver({ access: {}, lease: holds }));
    expect(await stub.settle(turn)).toEqual({ ok: true, value: 0 });
    expect(await stub.addConversationItems("conv", "next", "[]", "other", 0)).toMatchObject({ ok: true });
  });
});
