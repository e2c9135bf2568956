import { hashOf } from "@responses-edge/engines/hash";
import { type Candidate, chooseServer, firstOf, ranking } from "@responses-edge/engines/pool/choice";
import { InFlight } from "@responses-edge/engines/pool/in-flight";
import {
  isEjected,
  newRecord,
  newRetryBudget,
  noteFailure,
  noteRequest,
  noteSuccess,
  takeRetry,
} from "@responses-edge/engines/pool/server-load";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { randomFrom } from "../../../test/random.ts";

/** Which server a turn goes to, by itself: no server is asked here. */

type Server = Candidate & { name: string };

function server(name: string, state: Partial<Candidate> = {}): Server {
  const calm = { weight: 1, drains: false, keepsConversations: true, isEjected: false, isBusy: false, inFlight: 0 };
  return { name, hash: hashOf(name), ...calm, ...state };
}

const names = (count: number) => Array.from({ length: count }, (_, index) => `gpu-${index}`);
const pool = (count: number) => names(count).map((name) => server(name));
const keys = (count: number) => Array.from({ length: count }, (_, index) => hashOf(`tenant\nmodel\nroot\n${index}`));

const options = { keepsDraining: true, loadFactor: 1.5, random: randomFrom(1) };
const choose = (servers: readonly Server[], key: string | undefined, more: Partial<typeof options> = {}) =>
  chooseServer(servers, { ...options, ...more, key: key === undefined ? undefined : hashOf(key) })?.name;

describe("rendezvous hashing", () => {
  it("a server that comes or goes moves the keys of that server, and no other", () => {
    const text = fc.string({ minLength: 1, maxLength: 40 });
    const weighted = fc.record({ name: text, weight: fc.double({ min: 0.01, max: 100, noNaN: true }) });
    const several = fc.uniqueArray(weighted, { minLength: 2, maxLength: 12, selector: ({ name }) => name });
    fc.assert(
      fc.property(several, fc.array(text, { maxLength: 40 }), fc.nat(), (described, texts, which) => {
        const servers = described.map(({ name, weight }) => server(name, { weight }));
        const gone = servers[which % servers.length];
        const left = servers.filter((each) => each !== gone);
        for (const key of texts.map(hashOf)) {
          const order = ranking(servers, key);
          // What is left keeps its order: only the keys whose first server has gone are anybody else's now.
          expect(ranking(left, key)).toEqual(order.filter((each) => each !== gone));
          expect(firstOf(servers, key)).toBe(order[0]);
        }
      }),
    );
  });

  it.each([2, 4, 10])("of %i servers one that comes takes its share of the keys, and no more", (count) => {
    const all = keys(20_000);
    const [before, after] = [pool(count), pool(count + 1)];
    const moved = all.filter((key) => ranking(before, key)[0]?.name !== ranking(after, key)[0]?.name).length;
    // 1/(n+1), and what chance adds to it (five standard deviations).
    const share = 1 / (count + 1);
    const deviation = Math.sqrt((share * (1 - share)) / all.length);
    expect(moved / all.length).toBeGreaterThan(share - 5 * deviation);
    expect(moved / all.length).toBeLessThan(share + 5 * deviation);
  });

  it("each server gets the share of its weight", () => {
    const weights = [1, 2, 0.5, 4];
    const servers = weights.map((weight, index) => server(`gpu-${index}`, { weight }));
    const counts = new Map<string, number>();
    const all = keys(30_000);
    for (const key of all) {
      const first = ranking(servers, key)[0]?.name ?? "";
      counts.set(first, (counts.get(first) ?? 0) + 1);
    }
    const total = weights.reduce((sum, weight) => sum + weight);
    for (const { name, weight } of servers) {
      const share = weight / total;
      const deviation = Math.sqrt((share * (1 - share)) / all.length);
      expect(Math.abs((counts.get(name) ?? 0) / all.length - share)).toBeLessThan(5 * deviation);
    }
  });

  it("takes keys that differ in one letter for different ones, and any text", () => {
    const texts = ["", "a", "b", "aa", "\u0000", "😀", "x".repeat(100_000), `${"x".repeat(99_999)}y`];
    const hashes = texts.map((text) => JSON.stringify(hashOf(text)));
    expect(new Set(hashes).size).toBe(texts.length);
  });
});

describe("a turn with a key", () => {
  it("goes to the same server from every isolate, under any small load", () => {
    fc.assert(
      fc.property(fc.string(), fc.array(fc.nat(7), { minLength: 5, maxLength: 5 }), (key, loads) => {
        const busy = pool(5).map((each, index) => ({ ...each, inFlight: loads[index] ?? 0 }));
        expect(choose(busy, key)).toBe(choose(pool(5), key));
      }),
    );
  });

  it("finds a server that has not more than its share, however many keys are one server's", () => {
    const servers = pool(4);
    for (let turn = 0; turn < 400; turn += 1) {
      const chosen = servers.find(({ name }) => name === choose(servers, "the key of everybody"));
      if (!chosen) throw new Error("None was chosen.");
      chosen.inFlight += 1;
      const total = servers.reduce((sum, { inFlight }) => sum + inFlight, 0);
      expect(chosen.inFlight).toBeLessThanOrEqual(Math.max(8, Math.ceil((1.5 * total) / 4)));
    }
    // The first of the key's order has the most, and the last one what the others may not have.
    const order = ranking(servers, hashOf("the key of everybody")).map(({ inFlight }) => inFlight);
    expect(order).toEqual(order.toSorted((one, other) => other - one));
  });

  it("goes to the next in its order where the first is ejected or busy", () => {
    const order = ranking(pool(4), hashOf("key")).map(({ name }) => name);
    for (const state of [{ isEjected: true }, { isBusy: true }]) {
      const servers = pool(4).map((each) => (each.name === order[0] ? { ...each, ...state } : each));
      expect(choose(servers, "key")).toBe(order[1]);
    }
  });

  it("goes to its own server where most are ejected: that says more of the way there than of them", () => {
    const first = ranking(pool(4), hashOf("key"))[0]?.name;
    const servers = pool(4).map((each, index) => ({ ...each, isEjected: index < 3 || each.name === first }));
    expect(choose(servers, "key")).toBe(first);
  });

  it("leaves a server that drains and keeps nothing, as long as there is another", () => {
    const drained = pool(3).map((each) => ({ ...each, drains: each.name === "gpu-1", keepsConversations: false }));
    const chosen = Array.from({ length: 100 }, (_, index) => choose(drained, `${index}`));
    expect(new Set(chosen)).toEqual(new Set(["gpu-0", "gpu-2"]));
  });

  it("stays with a server that drains where its conversation was there, and goes there for nothing else", () => {
    const [first, second, third] = ranking(pool(4), hashOf("key")).map(({ name }) => name);
    const draining = (...drained: (string | undefined)[]) =>
      pool(4).map((each) => ({ ...each, drains: drained.includes(each.name) }));
    expect(choose(draining(first), "key")).toBe(first);
    expect(choose(draining(first), "key", { keepsDraining: false })).toBe(second);
    // The first server fails, and the sessions that replace its own are new to every server.
    const failing = draining(second).map((each) => ({ ...each, isEjected: each.name === first }));
    expect(choose(failing, "key")).toBe(third);
    expect(choose(draining(...names(4)), "key", { keepsDraining: false })).toBe(first);
  });
});

describe("a turn without a key", () => {
  it("goes to the less loaded of two that chance names, by weight", () => {
    const servers = [server("small", { inFlight: 3 }), server("large", { inFlight: 8, weight: 4 })];
    for (let turn = 0; turn < 50; turn += 1) expect(choose(servers, undefined)).toBe("large");
  });

  it("never goes to one that drains, is busy or ejected, while there is another", () => {
    const servers = [
      server("drains", { drains: true }),
      server("busy", { isBusy: true }),
      server("a", { inFlight: 9 }),
      server("b", { inFlight: 9 }),
      server("c", { inFlight: 9 }),
      server("ejected", { isEjected: true }),
    ];
    const chosen = new Set(Array.from({ length: 300 }, () => choose(servers, undefined)));
    expect([...chosen].toSorted()).toEqual(["a", "b", "c"]);
  });
});

describe("the turns of many conversations, while servers come and go", () => {
  it("find the server that has their cache, but for those whose server has gone or that a new one has taken", () => {
    const random = randomFrom(5);
    const conversations = Array.from({ length: 2_000 }, (_, index) => `root ${index}`);
    const cachedAt = new Map<string, string>();
    // Four servers; one more; one less; that one again, with nothing in its cache.
    const fleets = [pool(4), pool(5), pool(5).filter(({ name }) => name !== "gpu-1"), pool(5)];
    /** The maximum share of prompts that another server must compute again: that of an added or removed server. */
    const shares = [0, 1 / 5, 1 / 5, 1 / 5];
    for (const [phase, servers] of fleets.entries()) {
      let hits = 0;
      let ideal = 0;
      for (let turn = 0; turn < 3; turn += 1) {
        for (const conversation of conversations) {
          const chosen = choose(servers, conversation, { random }) ?? "";
          // With one cache for all, every turn but the first one finds it.
          if (cachedAt.has(conversation)) ideal += 1;
          if (cachedAt.get(conversation) === chosen) hits += 1;
          cachedAt.set(conversation, chosen);
        }
      }
      const missed = (ideal - hits) / conversations.length;
      const share = shares[phase] ?? 0;
      expect(missed).toBeLessThanOrEqual(share + 5 * Math.sqrt((share * (1 - share)) / conversations.length));
      if (share > 0) expect(missed).toBeGreaterThan(0);
    }
  });
});

describe("two hundred isolates that know nothing of each other", () => {
  /** What each server has in flight in every step, over all isolates. Each request lasts for ten steps. */
  function simulate(seed: number, keyOf: (random: () => number) => string | undefined): number[][] {
    const random = randomFrom(seed);
    const isolates = Array.from({ length: 200 }, () => pool(8));
    const ends: Server[][] = [];
    const history: number[][] = [];
    for (let step = 0; step < 60; step += 1) {
      for (const ended of ends[step] ?? []) ended.inFlight -= 1;
      for (const servers of isolates) {
        const name = choose(servers, keyOf(random), { random });
        const chosen = servers.find((each) => each.name === name);
        if (!chosen) throw new Error("None was chosen.");
        chosen.inFlight += 1;
        ends[step + 10] ??= [];
        ends[step + 10]?.push(chosen);
      }
      if (step >= 10)
        history.push(names(8).map((_, at) => isolates.reduce((sum, all) => sum + (all[at]?.inFlight ?? 0), 0)));
    }
    return history;
  }

  it.each([
    ["without keys", () => undefined],
    ["with a conversation each", (random: () => number) => `root ${random()}`],
  ])("do not herd: no server ever has much more than its share (%s)", (_, keyOf) => {
    for (const loads of simulate(7, keyOf)) {
      const mean = loads.reduce((sum, load) => sum + load, 0) / loads.length;
      expect(Math.max(...loads)).toBeLessThan(1.25 * mean);
    }
  });

  it("and leave a server that has come back to them neither alone nor all at once", () => {
    const random = randomFrom(3);
    // All see the same: one server has nothing to do, and all others have much. Whoever takes the least loaded takes that one.
    const isolates = Array.from({ length: 200 }, () =>
      pool(8).map((each, index) => ({ ...each, inFlight: index === 0 ? 0 : 20 })),
    );
    const taken = isolates.filter((servers) => choose(servers, undefined, { random }) === "gpu-0").length;
    // It is one of the two in a quarter of all choices: 1 - (7/8)(6/7).
    expect(taken).toBeGreaterThan(20);
    expect(taken).toBeLessThan(90);
  });
});

describe("a server that fails", () => {
  const fail = (records: ReturnType<typeof newRecord>[], which: number, times: number, now: number) => {
    const record = records[which];
    if (!record) throw new Error("There is no such server.");
    for (let failure = 0; failure < times; failure += 1) noteFailure(record, records, now);
    return record;
  };

  it("is left alone after five failures in a row, and not after four and a success", () => {
    const records = names(4).map(newRecord);
    const record = fail(records, 0, 4, 1_000);
    noteSuccess(record);
    fail(records, 0, 4, 1_000);
    expect(isEjected(record, 1_000)).toBe(false);
    fail(records, 0, 1, 1_000);
    expect(isEjected(record, 30_999)).toBe(true);
    expect(isEjected(record, 31_000)).toBe(false);
  });

  it("is left alone for longer each time, up to five minutes, and less again after a calm time", () => {
    const records = names(4).map(newRecord);
    let now = 0;
    const lengths: number[] = [];
    for (let ejection = 0; ejection < 12; ejection += 1) {
      const record = fail(records, 0, 5, now);
      lengths.push((record.ejectedUntil - now) / 1000);
      now = record.ejectedUntil;
    }
    expect(lengths).toEqual([30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300]);
    const record = fail(records, 0, 5, now + 3_600_000);
    expect(record.ejectedUntil - (now + 3_600_000)).toBe(30_000);
  });

  it("is not left alone for longer because a clock was set back", () => {
    const records = names(4).map(newRecord);
    const record = fail(records, 0, 5, 86_400_000);
    expect(isEjected(record, 86_400_000)).toBe(true);
    expect(isEjected(record, 0)).toBe(false);
  });

  it.each([
    [2, 1],
    [9, 1],
    [20, 2],
    [35, 3],
  ])("of %i servers at most %i are left alone at a time", (count, most) => {
    const records = names(count).map(newRecord);
    for (const which of records.keys()) fail(records, which, 50, 0);
    expect(records.filter((record) => isEjected(record, 1)).length).toBe(most);
  });
});

describe("ten minutes of many conversations, with servers in trouble", () => {
  type Trouble = "none" | "slow" | "fails" | "hangs";
  const FAILOVER_MS = 10_000;
  const FIRST_TOKEN_MS: Record<Trouble, number> = { none: 200, slow: 1_000, fails: 5, hangs: FAILOVER_MS };

  /** The times to the first token, in the clock of the simulation, sorted; and how many requests found no server. */
  function simulate(troubles: readonly Trouble[]): { times: number[]; lost: number } {
    const random = randomFrom(11);
    const isolates = Array.from({ length: 20 }, () => ({
      budget: newRetryBudget(0),
      records: troubles.map(newRecord),
      busyUntil: troubles.map(() => 0),
    }));
    const times: number[] = [];
    let lost = 0;
    for (let now = 0; now < 600_000; now += 20) {
      const isolate = isolates[Math.floor(random() * isolates.length)];
      if (!isolate) throw new Error("There is no such isolate.");
      const { budget, records, busyUntil } = isolate;
      noteRequest(budget, now);
      const key = hashOf(`root ${Math.floor(random() * 5_000)}`);
      const tried = new Set<string>();
      let waited = 0;
      for (;;) {
        const at = now + waited;
        const open = troubles
          .map((trouble, index) => ({
            ...server(`gpu-${index}`),
            trouble,
            index,
            record: records[index] ?? newRecord(),
          }))
          .map((each) => ({
            ...each,
            isEjected: isEjected(each.record, at),
            isBusy: at < (busyUntil[each.index] ?? 0),
          }))
          .filter(({ name }) => !tried.has(name));
        const chosen = chooseServer(open, { ...options, key, random });
        if (!chosen) throw new Error("None was chosen.");
        waited += FIRST_TOKEN_MS[chosen.trouble];
        if (chosen.trouble === "none" || chosen.trouble === "slow") {
          noteSuccess(chosen.record);
          times.push(waited);
          break;
        }
        noteFailure(chosen.record, records, now + waited);
        if (chosen.trouble === "hangs") busyUntil[chosen.index] = now + waited + 60_000;
        tried.add(chosen.name);
        if (tried.size === 3 || !takeRetry(budget, now + waited)) {
          lost += 1;
          break;
        }
      }
    }
    return { times: times.toSorted((one, other) => one - other), lost };
  }

  it.each<[what: string, troubles: Trouble[], p99: number]>([
    ["none", ["none", "none", "none", "none"], 200],
    ["one that is slow", ["slow", "none", "none", "none"], 1_000],
    ["one that fails", ["fails", "none", "none", "none"], 205],
    ["one that hangs", ["hangs", "none", "none", "none"], 200],
    ["one of each", ["hangs", "fails", "slow", "none", "none", "none"], 1_010],
  ])("%s: no request is lost, and 99 of 100 first tokens come as from the slowest that works", (_, troubles, p99) => {
    const { times, lost } = simulate(troubles);
    expect(lost).toBe(0);
    expect(times[Math.floor(0.99 * times.length)]).toBeLessThanOrEqual(p99);
    // A hanging server delays some requests.
    expect((times.at(-1) ?? 0) >= FAILOVER_MS).toBe(troubles.includes("hangs"));
  });
});

describe("the retry budget", () => {
  it("is a fifth of the requests, and ten a second", () => {
    const budget = newRetryBudget(0);
    const drain = (now: number) => {
      let taken = 0;
      while (takeRetry(budget, now)) taken += 1;
      return taken;
    };
    expect(drain(0)).toBe(10);
    expect(drain(0)).toBe(0);
    for (let request = 0; request < 50; request += 1) noteRequest(budget, 0);
    expect(drain(0)).toBeGreaterThanOrEqual(9);
    expect(drain(1_000)).toBeGreaterThanOrEqual(10);
    expect(drain(1_000)).toBe(0);
    // Nothing is saved up for longer than ten seconds, and a clock that jumps back gives nothing.
    expect(drain(3_600_000)).toBe(100);
    expect(drain(0)).toBe(0);
    expect(drain(-3_600_000)).toBe(0);
  });
});

describe("the requests in progress", () => {
  it("are counted until they are left, once each", () => {
    const inFlight = new InFlight();
    const leaves = [1, 2, 3].map(() => inFlight.enter(0));
    expect(inFlight.count).toBe(3);
    leaves[0]?.();
    leaves[0]?.();
    expect(inFlight.count).toBe(2);
    for (const leave of leaves) leave();
    expect(inFlight.count).toBe(0);
  });
});
