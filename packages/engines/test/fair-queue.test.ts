import { FairQueue, type Flow, PRIORITIES, type Queued } from "@responses-edge/engines/pool/fair-queue";
import { type ServerDemand, ServerShares, sharesOf } from "@responses-edge/engines/pool/shares";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

/** The order in which requests to a saturated server are sent, by itself: no time passes here, and no server is asked. */

interface Request {
  flow: Flow;
  tokens: number;
}

function flow(tenant: string, more: Partial<Flow> = {}): Flow {
  return { priority: "interactive", tenant, key: "", conversation: "", tenantWeight: 1, keyWeight: 1, ...more };
}

/** A server that runs some requests at a time; whenever one ends, the sender adds another one. */
class Server {
  readonly queue = new FairQueue<Request>(() => 0);
  readonly spent = new Map<string, number>();
  readonly #running: Queued<Request>[] = [];
  readonly #limit: number;

  constructor(limit: number) {
    this.#limit = limit;
  }

  add(...requests: Request[]): void {
    for (const request of requests) this.queue.add(request.flow, request);
  }

  /** Ends the oldest request, and sends as many as may run. Gives the ended one. */
  step(): Request | undefined {
    const ended = this.#running.shift();
    if (ended) {
      const { flow: from, tokens } = ended.item;
      this.queue.end(ended, tokens);
      this.spent.set(nameOf(from), (this.spent.get(nameOf(from)) ?? 0) + tokens);
    }
    for (;;) {
      const next = this.#running.length < this.#limit ? this.queue.take() : undefined;
      if (!next) return ended?.item;
      this.#running.push(next);
    }
  }

  /** Lets requests end, each replaced by one of the same sender. */
  run(steps: number): void {
    for (let step = 0; step < steps; step += 1) {
      const ended = this.step();
      if (ended) this.add(ended);
    }
  }
}

const nameOf = ({ priority, tenant, key, conversation }: Flow) => [priority, tenant, key, conversation].join("/");

function spentBy(server: Server, matches: (name: string) => boolean): number {
  return [...server.spent].reduce((sum, [name, tokens]) => sum + (matches(name) ? tokens : 0), 0);
}

/** Jain's index of fairness: 1 for equal shares. */
function jain(shares: readonly number[]): number {
  const sum = shares.reduce((total, share) => total + share, 0);
  return sum ** 2 / (shares.length * shares.reduce((total, share) => total + share ** 2, 0));
}

describe("requests that wait for a server", () => {
  it("share its tokens equally between tenants, however many requests each has and however long these are", () => {
    const tenants = fc.array(
      fc.record({ requests: fc.integer({ min: 8, max: 60 }), tokens: fc.integer({ min: 20, max: 3_000 }) }),
      { minLength: 2, maxLength: 6 },
    );
    fc.assert(
      fc.property(tenants, fc.integer({ min: 1, max: 8 }), (described, limit) => {
        const server = new Server(limit);
        for (const [index, { requests, tokens }] of described.entries()) {
          for (let each = 0; each < requests; each += 1) server.add({ flow: flow(`t${index}`), tokens });
        }
        server.run(20_000);
        const shares = described.map((_, index) => spentBy(server, (name) => name.includes(`/t${index}/`)));
        // Requests whose tokens are unknown while they run, and few of them: 0.99 is missed once in a thousand.
        expect(jain(shares)).toBeGreaterThan(0.97);
      }),
      { numRuns: 30 },
    );
  });

  it("share them by the weights of tenants, then of keys, then equally between conversations", () => {
    const server = new Server(4);
    const many = (from: Flow, requests: number) => {
      for (let each = 0; each < requests; each += 1) server.add({ flow: from, tokens: 100 });
    };
    many(flow("a", { key: "1", tenantWeight: 3, keyWeight: 2, conversation: "x" }), 10);
    many(flow("a", { key: "1", tenantWeight: 3, keyWeight: 2, conversation: "y" }), 50);
    many(flow("a", { key: "2", tenantWeight: 3, conversation: "z" }), 40);
    many(flow("b"), 100);
    server.run(12_000);
    const all = spentBy(server, () => true);
    const part = (text: string) => spentBy(server, (name) => name.includes(text)) / all;
    expect(part("/a/")).toBeCloseTo(3 / 4, 1);
    expect(part("/a/1/")).toBeCloseTo(1 / 2, 1);
    expect(part("/a/1/x")).toBeCloseTo(1 / 4, 1);
    expect(part("/a/1/y")).toBeCloseTo(1 / 4, 1);
    expect(part("/b/")).toBeCloseTo(1 / 4, 1);
  });

  it("of a tenant that was away come first, and give it no credit for that time", () => {
    const server = new Server(1);
    for (let each = 0; each < 20; each += 1) server.add({ flow: flow("flood"), tokens: 1_000 });
    server.run(500);
    server.add(...Array.from({ length: 10 }, () => ({ flow: flow("other"), tokens: 1_000 })));
    const next = Array.from({ length: 9 }, () => {
      const ended = server.step();
      if (ended) server.add(ended);
      return ended?.flow.tenant;
    });
    // The one that runs, and then they take turns.
    expect(next.slice(0, 2)).toEqual(["flood", "other"]);
    expect(next.filter((tenant) => tenant === "other").length).toBeLessThanOrEqual(5);
  });

  it("are not behind requests of a flood whose tokens are unknown until they end", () => {
    const server = new Server(30);
    for (let each = 0; each < 60; each += 1) server.add({ flow: flow("flood"), tokens: 20 });
    server.step();
    server.add({ flow: flow("other"), tokens: 20 });
    server.step();
    expect(server.queue.sizeOf("other")).toBe(0);
  });

  it("come in the order of their classes, and none starves", () => {
    const server = new Server(1);
    for (const priority of PRIORITIES) {
      for (let each = 0; each < 10; each += 1) server.add({ flow: flow("t", { priority }), tokens: 10 });
    }
    server.run(3_200);
    const [interactive = 0, background = 0, batch = 0] = PRIORITIES.map((priority) =>
      spentBy(server, (name) => name.startsWith(`${priority}/`)),
    );
    const all = interactive + background + batch;
    expect(interactive / all).toBeGreaterThan(0.8);
    for (const lower of [background, batch]) expect(lower / all).toBeGreaterThan(0.05);
  });

  it("of one conversation are first in, first out", () => {
    const server = new Server(1);
    server.add(...[1, 2, 3, 4].map((tokens) => ({ flow: flow("t", { conversation: "c" }), tokens })));
    server.step();
    expect([1, 2, 3, 4].map(() => server.step()?.tokens)).toEqual([1, 2, 3, 4]);
  });

  it("are each taken once, and removed ones never, in any order of calls", () => {
    const name = fc.constantFrom("a", "b", "c");
    const added = fc.record({ tenant: name, key: name, conversation: name, priority: fc.constantFrom(...PRIORITIES) });
    const action = fc.oneof(
      added.map((from) => ({ add: from })),
      fc.constant({ take: true }),
      fc.nat().map((index) => ({ remove: index })),
      fc.record({ end: fc.nat(), tokens: fc.nat(5_000) }),
    );
    fc.assert(
      fc.property(fc.array(action, { maxLength: 200 }), (actions) => {
        const queue = new FairQueue<number>(() => 0);
        const waiting = new Map<number, Queued<number>>();
        const running = new Map<number, Queued<number>>();
        let count = 0;
        const at = (map: ReadonlyMap<number, Queued<number>>, index: number) => [...map][index % Math.max(1, map.size)];
        for (const each of actions) {
          if ("add" in each) {
            waiting.set(count, queue.add(flow("", each.add), count));
            count += 1;
          } else if ("remove" in each) {
            const [id, queued] = at(waiting, each.remove) ?? [];
            if (id !== undefined && queued) {
              queue.remove(queued);
              queue.remove(queued);
              waiting.delete(id);
            }
          } else if ("end" in each) {
            const [id, queued] = at(running, each.end) ?? [];
            if (id !== undefined && queued) {
              queue.end(queued, each.tokens);
              queue.end(queued, each.tokens);
              running.delete(id);
            }
          } else {
            const queued = queue.take();
            expect(queued === undefined).toBe(waiting.size === 0);
            if (!queued) continue;
            expect(waiting.delete(queued.item)).toBe(true);
            running.set(queued.item, queued);
          }
          expect(queue.size).toBe(waiting.size);
          const all = [...queue.requests().values()].reduce((sum, each) => sum + each, 0);
          expect(all).toBe(waiting.size + running.size);
        }
      }),
    );
  });

  it("leave nothing of senders that are gone", () => {
    const queue = new FairQueue<null>(() => 0);
    for (let each = 0; each < 5_000; each += 1) {
      const from = flow(`t${each}`, { key: `k${each}`, conversation: `c${each}` });
      queue.add(from, null);
      const queued = queue.take();
      if (queued) queue.end(queued, each % 100);
    }
    expect(queue.groups).toBeLessThan(1_000);
  });
});

describe("a limit that processes share", () => {
  const demand = fc.record({
    inFlight: fc.nat(50),
    requests: fc.dictionary(fc.constantFrom("a", "b", "c"), fc.integer({ min: 1, max: 100 })),
  });

  it("is used up and not exceeded, as far as each has at least one", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 100 }),
        fc.array(demand, { minLength: 1, maxLength: 8 }),
        (limit, demands) => {
          const shares = sharesOf(
            limit,
            demands.map((each, index) => ({ name: `p${index}`, ...each })),
          );
          const total = [...shares.values()].reduce((sum, share) => sum + share, 0);
          for (const share of shares.values()) expect(share).toBeGreaterThanOrEqual(1);
          if (demands.length <= limit / 2) expect(total).toBeGreaterThanOrEqual(limit);
          expect(total).toBeLessThanOrEqual(Math.max(limit, limit + demands.length - 1));
        },
      ),
    );
  });

  it("is divided by tenants, not by the number of their requests", () => {
    const shares = sharesOf(20, [
      { name: "one", inFlight: 0, requests: { flood: 1_000 } },
      { name: "two", inFlight: 0, requests: { other: 100 } },
    ]);
    expect(Object.fromEntries(shares)).toEqual({ one: 10, two: 10 });
  });

  it("goes where it is needed", () => {
    const shares = sharesOf(20, [
      { name: "busy", inFlight: 10, requests: { flood: 100 } },
      { name: "calm", inFlight: 1, requests: {} },
    ]);
    expect(Object.fromEntries(shares)).toEqual({ busy: 18, calm: 2 });
  });

  it("forgets processes that are gone, and tells each what tenants have had elsewhere", () => {
    const shares = new ServerShares();
    const report = (tokens: Record<string, number>): ServerDemand[] => [
      { server: "gpu", limit: 8, inFlight: 4, requests: { t: 50 }, tokens },
    ];
    expect(shares.exchange("one", report({ t: 5 }), 1_000)).toEqual([{ server: "gpu", share: 8, tokens: {} }]);
    // The first one may still have eight in progress.
    expect(shares.exchange("two", report({ t: 7 }), 1_100)).toEqual([{ server: "gpu", share: 1, tokens: {} }]);
    expect(shares.exchange("one", report({ t: 1 }), 1_200)).toEqual([{ server: "gpu", share: 4, tokens: { t: 7 } }]);
    expect(shares.exchange("one", report({}), 1_300)).toEqual([{ server: "gpu", share: 4, tokens: {} }]);
    expect(shares.exchange("two", report({}), 1_400)).toEqual([{ server: "gpu", share: 4, tokens: { t: 1 } }]);
    expect(shares.exchange("one", report({}), 9_000)).toEqual([{ server: "gpu", share: 8, tokens: {} }]);
  });
});
