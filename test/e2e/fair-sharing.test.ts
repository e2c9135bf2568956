import type { ResponseTiming } from "@responses-edge/responses-api/response";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { numbered, Rig, senders } from "./fair-rig.ts";
import { ask, newTenant } from "./key-support.ts";
import { eventually } from "./support.ts";

/** Requests that wait for saturated model servers: tenants, keys and conversations take turns (docs/fleet.md#fair-sharing). */

describe("a server with max_in_flight 2", () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.start(
      1,
      { max_in_flight: 2 },
      { UPSTREAM_MAX_WAITING: "20", UPSTREAM_MAX_IN_FLIGHT: "1000", PASSTHROUGH_ENDPOINTS: "chat/completions" },
    );
  });
  afterEach(() => rig.drain());
  afterAll(() => rig.close());

  it("gets no more requests at a time, and all of them in the end", async () => {
    const key = await rig.key();
    const answers = numbered("r", 10).map((input) => rig.send(key, input));
    for (let ended = 0; ended < 10; ended += 1) await rig.server.endOne();
    for (const answer of await Promise.all(answers)) expect(answer.status).toBe(200);
    expect(rig.server.most).toBe(2);
  });

  it("gets another tenant's request before those of a flood that came earlier", async () => {
    const [flood, other] = [await rig.key(), await rig.key()];
    await rig.sendAll(flood, numbered("flood", 10));
    await rig.sendAll(other, ["other"]);
    await rig.server.endOne();
    await eventually(() => rig.server.asked.length === 3);
    expect(senders(rig.server.asked)).toEqual(["flood", "flood", "other"]);
  });

  it("is shared between tenants by tokens, not by requests", async () => {
    const [long, short] = [await rig.key(), await rig.key()];
    await rig.sendAll(
      long,
      numbered("long", 8).map((name) => `${name} TOKENS=400`),
    );
    await rig.sendAll(
      short,
      numbered("short", 8).map((name) => `${name} TOKENS=100`),
    );
    for (let ended = 0; ended < 10; ended += 1) {
      await rig.server.endOne();
      await eventually(() => rig.server.asked.length === Math.min(16, ended + 3));
    }
    // After the ten that have ended: two of the first tenant's came when nobody waited.
    const asked = senders(rig.server.asked.slice(2));
    expect(asked.filter((name) => name === "short").length).toBeGreaterThanOrEqual(7);
    expect(asked.filter((name) => name === "long").length).toBeGreaterThanOrEqual(2);
  });

  it("is shared between the keys of a tenant, and between the conversations of a key", async () => {
    const tenant = newTenant();
    const [busy, calm] = [await rig.key(tenant), await rig.key(tenant)];
    await rig.sendAll(busy, numbered("one", 6), { prompt_cache_key: "one" });
    await rig.sendAll(busy, numbered("two", 1), { prompt_cache_key: "two" });
    await rig.sendAll(calm, numbered("calm", 1));
    for (let ended = 0; ended < 4; ended += 1) {
      await rig.server.endOne();
      await eventually(() => rig.server.asked.length === ended + 3);
    }
    // Of the four that have waited, two are those that would otherwise be the last.
    expect(new Set(senders(rig.server.asked.slice(2)))).toEqual(new Set(["one", "two", "calm"]));
  });

  it("is shared by the weights of tenants", async () => {
    const [heavy, light] = [newTenant(), newTenant()];
    await ask(rig.api, "POST", `/v1/admin/tenants/${heavy}`, { limits: { weight: 3 } });
    const keys = [await rig.key(heavy), await rig.key(light)] as const;
    await rig.sendAll(keys[0], numbered("heavy", 9));
    await rig.sendAll(keys[1], numbered("light", 9));
    for (let ended = 0; ended < 9; ended += 1) {
      await rig.server.endOne();
      await eventually(() => rig.server.asked.length === ended + 3);
    }
    const asked = senders(rig.server.asked.slice(2));
    const light9 = asked.filter((name) => name === "light").length;
    expect(light9).toBeGreaterThanOrEqual(2);
    expect(light9).toBeLessThanOrEqual(4);
  });

  it("gets an interactive request before a background run that has waited longer", async () => {
    const key = await rig.key();
    await rig.sendAll(key, numbered("first", 2));
    await rig.sendAll(key, ["background"], { background: true, store: true });
    await rig.sendAll(key, ["interactive"]);
    for (let ended = 0; ended < 4; ended += 1) await rig.server.endOne();
    expect(senders(rig.server.asked)).toEqual(["first", "first", "interactive", "background"]);
  });

  it("gets no request of a client that has left the queue", async () => {
    const key = await rig.key();
    await rig.sendAll(key, numbered("first", 2));
    const leaving = new AbortController();
    const left = rig.send(key, "left", { stream: true }, leaving.signal);
    await eventually(async () => (await rig.waiting()) === 1);
    leaving.abort();
    await expect(left.then((answer) => answer.text())).rejects.toThrow();
    await eventually(async () => (await rig.waiting()) === 0);
    await rig.sendAll(key, ["next"]);
    for (let ended = 0; ended < 3; ended += 1) await rig.server.endOne();
    expect(senders(rig.server.asked)).toEqual(["first", "first", "next"]);
  });

  it("has a bounded queue, in which a flood leaves room: a 429 with a time to retry for its sender", async () => {
    const [flood, other] = [await rig.key(), await rig.key()];
    const answers = numbered("flood", 30).map((input) => rig.send(flood, input));
    const refused = await Promise.race(answers);
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(await refused.json()).toMatchObject({ error: { code: "rate_limit_exceeded", type: "rate_limit_error" } });
    await rig.sendAll(other, ["other"]);
    await eventually(async () => (await rig.waiting()) === 16);
    await rig.server.endOne();
    await eventually(() => rig.server.asked.length === 3);
    expect(rig.server.asked).toContain("other");
  });

  it("is waited for by a background run that found its queue full", async () => {
    const key = await rig.key();
    const answers = numbered("flood", 30).map((input) => rig.send(key, input));
    expect((await Promise.race(answers)).status).toBe(429);
    const run = await rig.send(key, "run", { background: true, store: true });
    const { id } = (await run.json()) as { id: string };
    const retrieve = async () => {
      const headers = { authorization: `Bearer ${key}` };
      return ((await (await fetch(`${rig.gateway.url}/v1/responses/${id}`, { headers })).json()) as { status: string })
        .status;
    };
    await eventually(async () => {
      for (const { end } of rig.server.running) end();
      return (await retrieve()) === "completed";
    });
  });

  it("says how long requests have waited", async () => {
    const key = await rig.key();
    await rig.sendAll(key, numbered("r", 3));
    const last = rig.send(key, "last", { include: ["timing"] });
    await eventually(async () => (await rig.waiting()) === 2);
    await rig.drain();
    const { timing } = (await (await last).json()) as { timing: ResponseTiming };
    expect(timing.queued_ms).toBeGreaterThan(0);
    expect(timing.rounds).toMatchObject([{ queued_ms: timing.queued_ms, attempts: 1 }]);
    await eventually(async () => {
      return /^responses_edge_queued_seconds_count [1-9]/m.test(await rig.metrics());
    });
  });

  it("is shared with requests to its own endpoints", async () => {
    const [flood, other] = [await rig.key(), await rig.key()];
    await rig.sendAll(flood, numbered("flood", 6));
    const passed = fetch(`${rig.gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${other}` },
      body: JSON.stringify({ model: "held", stream: true, messages: [{ role: "user", content: "passed" }] }),
    });
    await eventually(async () => (await rig.waiting()) === 5);
    await rig.server.endOne();
    await eventually(() => rig.server.asked.length === 3);
    expect(rig.server.asked.at(-1)).toBe("passed");
    await rig.drain();
    expect(await (await passed).text()).toContain("[DONE]");
  });
});

describe("two servers with max_in_flight 2", () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.start(2, { max_in_flight: 2 });
  });
  afterEach(() => rig.drain());
  afterAll(() => rig.close());

  it("are both used, also for one conversation's requests, before one waits", async () => {
    const key = await rig.key();
    await rig.sendAll(key, numbered("r", 5), { prompt_cache_key: "one" });
    expect(rig.servers.map(({ asked }) => asked.length)).toEqual([2, 2]);
    expect(await rig.waiting()).toBe(1);
  });

  it.each([0, 1])(
    "get a new conversation's request whichever has one end first, before a flood's: server %i",
    async (index) => {
      const [flood, other] = [await rig.key(), await rig.key()];
      // Requests of a flood wait for each of them.
      for (const input of numbered("flood", 24)) await rig.sendAll(flood, [input], { prompt_cache_key: input });
      await rig.sendAll(other, ["other"]);
      const server = rig.servers[index];
      await server?.endOne();
      await eventually(() => server?.asked.length === 3);
      expect(server?.asked.at(-1)).toBe("other");
    },
  );

  it("get requests that wait for the other one when they have none of their own", async () => {
    const key = await rig.key();
    await rig.sendAll(key, numbered("r", 6), { prompt_cache_key: "one" });
    // All that wait have one server, by their key; either server takes them.
    for (const server of rig.servers) {
      const before = server.asked.length;
      await server.endOne();
      await eventually(() => server.asked.length === before + 1);
    }
    expect(await rig.waiting()).toBe(0);
  });
});

describe("a server that shows that it is saturated", () => {
  let rig: Rig;
  beforeEach(async () => {
    rig = await Rig.start(1, {}, { UPSTREAM_BOARD_MS: "100" });
  });
  afterEach(async () => {
    await rig.drain();
    await rig.close();
  });

  it("by a 429: the request waits until another one ends, and others with it", async () => {
    const [flood, other] = [await rig.key(), await rig.key()];
    rig.server.takes = 3;
    await rig.sendAll(flood, numbered("flood", 8));
    expect(await rig.waiting()).toBe(5);
    await rig.sendAll(other, ["other"]);
    for (const length of [4, 5]) {
      await rig.server.endOne();
      await eventually(() => rig.server.asked.length === length);
    }
    // Requests from before the limit was known are not counted.
    expect(rig.server.asked.slice(3)).toContain("other");
  });

  it("by its metrics: requests wait in the gateway, and tenants take turns", async () => {
    const [flood, other] = [await rig.key(), await rig.key()];
    await rig.sendAll(flood, numbered("flood", 4));
    rig.server.waiting = 4;
    // Reports come with requests, which are sent until the first one waits.
    await eventually(async () => {
      void rig.send(flood, "flood");
      return (await rig.waiting()) > 0;
    });
    await rig.sendAll(other, ["other"]);
    rig.server.waiting = 0;
    const before = rig.server.asked.length;
    await eventually(() => {
      void rig.server.endOne();
      return rig.server.asked.length > before + 1;
    });
    expect(rig.server.asked.slice(before, before + 2)).toContain("other");
  });
});
