import { describe, expect, it } from "vitest";
import { BOUNDS, passedBound, type Spent } from "../../cli/serve/process-bounds.ts";
import { TaskTurns } from "../../cli/serve/task-turns.ts";

/** Which task is done next, and which one is ended (`cli/serve/bounded-processes.ts`). */

/** Asks for turns of tenants. `begun` has those that were given, in order. */
function turnsOf(places: number | [places: number, perTenant: number], ...tenants: string[]) {
  const turns = new TaskTurns(...([places].flat() as [number, number?]));
  const begun: string[] = [];
  const given = tenants.map(async (tenant, index) => {
    const turn = await turns.next(tenant);
    begun.push(`${tenant}${index}`);
    return turn;
  });
  return { begun, end: async (index: number) => (await given[index])?.[Symbol.dispose]() };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

describe("turns of tasks", () => {
  it("are one at a time for each tenant", async () => {
    const { begun, end } = turnsOf(4, "a", "a", "b");
    await settle();
    expect(begun).toEqual(["a0", "b2"]);
    await end(0);
    await settle();
    expect(begun).toEqual(["a0", "b2", "a1"]);
  });

  it("may be several for each tenant, and no more than that", async () => {
    const { begun, end } = turnsOf([4, 2], "a", "a", "a", "b", "b", "b");
    await settle();
    expect(begun).toEqual(["a0", "a1", "b3", "b4"]);
    await end(0);
    await settle();
    expect(begun).toEqual(["a0", "a1", "b3", "b4", "a2"]);
  });

  it("are no more than there are places, and go to each tenant before one has a second", async () => {
    const { begun, end } = turnsOf(1, "a", "a", "a", "b", "c");
    for (const index of [0, 3, 4, 1]) {
      await settle();
      await end(index);
    }
    await settle();
    expect(begun).toEqual(["a0", "b3", "c4", "a1", "a2"]);
  });
});

const NOTHING: Spent = { ms: 0, cpuMs: 0, silentMs: 0, silentCpuMs: 0, memory: 0 };

describe("the reading of a file", () => {
  it.each<[what: string, spent: Partial<Spent>, bound: "time" | "memory" | undefined]>([
    ["goes on while its process gives signs of life", { ms: 100_000, cpuMs: 100_000, silentCpuMs: 4_000 }, undefined],
    ["goes on where a busy machine gives its process little", { ms: 50_000, silentMs: 50_000, cpuMs: 900 }, undefined],
    ["ends without a sign of life, by what it has used", { silentMs: 5_001, silentCpuMs: 5_001 }, "time"],
    ["ends without a sign of life, by the clock, where nothing tells what it uses", { silentMs: 60_001 }, "time"],
    ["ends when all of it takes too long", { cpuMs: 120_001 }, "time"],
    ["ends when all of it takes too long, by the clock", { ms: 600_001 }, "time"],
    ["ends when it takes too much memory", { memory: 800 * 1024 * 1024 }, "memory"],
  ])("%s", (_, spent, bound) => {
    expect(passedBound({ ...NOTHING, ...spent }, BOUNDS.file)).toBe(bound);
  });
});
