import { collect, finish, LongWork, SliceQueue, type Steps } from "@responses-edge/bounded-io/long-work";
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";

/** A queue whose gaps end when the test says so, one at a time. */
function heldQueue() {
  const gaps: (() => void)[] = [];
  const queue = new SliceQueue(() => new Promise((resolve) => gaps.push(resolve)));
  return {
    queue,
    gaps,
    /** Ends one of the gaps that have begun by now, and lets everything go on that this makes go on. */
    async *endGaps(order: (length: number) => number) {
      for (const begun = gaps.splice(0); begun.length > 0; ) {
        begun.splice(order(begun.length), 1)[0]?.();
        for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
        yield;
      }
    },
  };
}

/** How many slices each piece of work wants, by tenant. */
const works = fc.array(fc.record({ tenant: fc.constantFrom("a", "b", "c"), slices: fc.integer({ min: 1, max: 6 }) }), {
  minLength: 1,
  maxLength: 8,
});

describe("slices of long work", () => {
  it("are given to tenants in turn, one at a time, for any order of timers, also if some never fire", async () => {
    await fc.assert(
      fc.asyncProperty(
        works,
        fc.array(fc.nat(), { minLength: 1, maxLength: 50 }),
        fc.nat(3),
        async (wanted, order, lost) => {
          const { queue, gaps, endGaps } = heldQueue();
          // Requests that the platform drops: their timers never ring.
          for (let at = 0; at < lost; at += 1) void queue.next("gone");
          gaps.length = 0;
          const given: string[] = [];
          const left = new Map<string, number>();
          let running = 0;
          for (const { tenant, slices } of wanted) {
            left.set(tenant, (left.get(tenant) ?? 0) + slices);
            running += 1;
            void (async () => {
              for (let slice = 0; slice < slices; slice += 1) {
                await queue.next(tenant);
                given.push(tenant);
              }
              running -= 1;
            })();
          }
          const total = wanted.reduce((sum, { slices }) => sum + slices, 0);
          let rings = 0;
          while (running > 0) {
            const before = given.length;
            const pick = (length: number) => (order[rings++ % order.length] ?? 0) % length;
            for await (const _ of endGaps(pick)) expect(rings).toBeLessThan(1000 * total);
            // Timers that ring together give one slice: other events come between any two.
            expect(given.length - before).toBeLessThanOrEqual(1);
          }
          expect(given.length).toBe(total);
          // As long as two tenants both have something to do, neither gets two slices more than the other.
          const got = new Map([...left.keys()].map((tenant) => [tenant, 0]));
          for (const tenant of given) {
            const mine = (got.get(tenant) ?? 0) + 1;
            got.set(tenant, mine);
            for (const [other, count] of got) {
              if (count < (left.get(other) ?? 0)) expect(mine - count).toBeLessThanOrEqual(2);
            }
          }
        },
      ),
      { numRuns: 50 },
    );
  });

  it("are given also to those whose timers ring too late, so that they were taken for dropped ones", async () => {
    const { queue, gaps, endGaps } = heldQueue();
    const now = vi.spyOn(Date, "now").mockReturnValue(1_000_000);
    try {
      let given = 0;
      for (let waiter = 0; waiter < 6; waiter += 1) void queue.next("a").then(() => (given += 1));
      const first = gaps.shift();
      // The others look again and again while the first one's timer does not ring, until one of them has its place.
      for (let ms = 0; ms <= 150; ms += 50) {
        now.mockReturnValue(1_000_000 + ms);
        for await (const _ of endGaps(() => 0));
      }
      expect(given).toBe(0);
      first?.();
      for (let rings = 0; given < 6; rings += 1) {
        expect(rings).toBeLessThan(100);
        for await (const _ of endGaps(() => 0));
      }
    } finally {
      now.mockRestore();
    }
  });

  it("end after a number of units, and short work has none", async () => {
    function* work(steps: number): Steps<number> {
      for (let step = 0; step < steps; step += 1) yield 100;
      return steps;
    }
    let turns = 0;
    let isDone = false;
    const takeTurns = () => {
      turns += 1;
      if (!isDone) setTimeout(takeTurns, 0);
    };
    setTimeout(takeTurns, 0);
    expect(await new LongWork("a").run(work(99))).toBe(99);
    expect(turns).toBe(0);
    expect(await new LongWork("a").run(work(1_000))).toBe(1_000);
    isDone = true;
    expect(turns).toBeGreaterThanOrEqual(10);
    expect(finish(work(5))).toBe(5);
  });

  it("are given to short work, too, of a tenant with more than its share, as long as others have work", async () => {
    let turns = 0;
    let isDone = false;
    const takeTurns = () => {
      turns += 1;
      if (!isDone) setTimeout(takeTurns, 0);
    };
    const short = async (tenant: string, count: number) => {
      turns = 0;
      for (let piece = 0; piece < count; piece += 1) await new LongWork(tenant).spend(1_000);
      return turns;
    };
    setTimeout(takeTurns, 0);
    // The tenants of other tests compete for a second.
    await scheduler.wait(1_100);
    expect(await short("alone", 100)).toBe(0);
    expect(await short("another", 5)).toBe(0);
    expect(await short("alone", 20)).toBeGreaterThan(10);
    isDone = true;
  });

  it("are soon given to one of two tenants, of which the other has hundreds of waiters", async () => {
    const order: string[] = [];
    const work = async (tenant: string) => {
      await new LongWork(tenant).spend(20_000);
      order.push(tenant);
    };
    const flood = Array.from({ length: 300 }, () => work("flood"));
    await work("other");
    expect(order.length).toBeLessThan(20);
    void flood;
  });

  it("come between elements that are collected, which are all there", async () => {
    const values = Array.from({ length: 1_050 }, (_, at) => at);
    const steps = collect(values.values(), 3);
    const units = [];
    for (let step = steps.next(); ; step = steps.next()) {
      if (step.done) {
        expect(step.value).toEqual(values);
        break;
      }
      units.push(step.value);
    }
    expect(units).toEqual(Array(10).fill(300));
  });
});
