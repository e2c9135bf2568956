import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";

// A module of its own: other tests of this isolate hold permits, too.
vi.resetModules();
const { Permits, turnsBesideClients } = await import("../../src/store/limits/permits.ts");
type Permits = InstanceType<typeof Permits>;

const ALL = 12;
const SHARE = 9;
const LENGTH = 256 * 1024;

const ownerOf = (tenant: string, maxOpenTurns = ALL) => ({ tenant, config: { maxOpenTurns } });

/** The number of permits that each kind of work needs. */
const NEEDED = {
  turn: (length: number) => Math.min(SHARE, 1 + Math.floor(length / LENGTH)),
  run: (length: number) => Math.min(SHARE, 1 + Math.floor(length / LENGTH)),
  body: (length: number) => Math.min(SHARE, 1 / 8 + (3 * length) / LENGTH),
  text: (length: number) => Math.min(SHARE, Math.floor(length / LENGTH)),
};

type Kind = keyof typeof NEEDED;

const MAKERS: Record<Kind, (tenant: string) => Permits> = {
  turn: (tenant) => new Permits("turn", ownerOf(tenant), 0),
  run: (tenant) => new Permits("run", ownerOf(tenant), 0),
  body: (tenant) => new Permits("body", ownerOf(tenant)),
  text: (tenant) => new Permits("text", ownerOf(tenant)),
};

/** The permits that each kind holds from the beginning. */
const INITIAL: Record<Kind, number> = { turn: 1, run: 1, body: 0, text: 0 };

/** The status of the error that it throws. */
function refusalOf(act: () => void): number | undefined {
  try {
    act();
    return undefined;
  } catch (error) {
    return error instanceof Error && "status" in error ? Number(error.status) : Number.NaN;
  }
}

const length = fc.oneof(fc.constant(0), fc.nat(20_000), fc.nat(4 * LENGTH), fc.nat(20 * LENGTH));
const step = fc.record({
  what: fc.constantFrom("enter", "resize", "resize anyway", "leave"),
  kind: fc.constantFrom<Kind>("turn", "run", "body", "text"),
  tenant: fc.constantFrom("a", "b", "c"),
  which: fc.nat(),
  length,
});

describe("the memory permits of an isolate", () => {
  it("stay consistent under any operations: no tenant has more than allowed, and none is lost", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const held: { holder: Permits; kind: Kind; tenant: string; permits: number }[] = [];
        const sum = (tenant?: string) =>
          held.reduce((all, each) => all + (tenant === undefined || each.tenant === tenant ? each.permits : 0), 0);
        const expected = (tenant: string, more: number) => {
          if (more <= 0) return undefined;
          const free = ALL - sum() - more;
          if (free < 0) return 503;
          if (sum(tenant) + more <= Math.max(1, 3 * free)) return undefined;
          return sum(tenant) === 0 ? 503 : 429;
        };
        for (const { what, kind, tenant, which, length } of steps) {
          const at = held.length > 0 ? which % held.length : 0;
          const chosen = held[at];
          if (what === "enter") {
            const permits = INITIAL[kind];
            const refusal = expected(tenant, permits);
            expect(refusalOf(() => held.push({ holder: MAKERS[kind](tenant), kind, tenant, permits }))).toBe(refusal);
          } else if (!chosen) continue;
          else if (what === "leave") {
            chosen.holder[Symbol.dispose]();
            // A second release has no effect.
            chosen.holder[Symbol.dispose]();
            chosen.holder.resize(length);
            held.splice(at, 1);
          } else {
            const permits = NEEDED[chosen.kind](length);
            const isSure = what === "resize anyway";
            const refusal = isSure ? undefined : expected(chosen.tenant, permits - chosen.permits);
            const resize = () => (isSure ? chosen.holder.resize(length, true) : chosen.holder.resize(length));
            expect(refusalOf(resize)).toBe(refusal);
            if (refusal === undefined) chosen.permits = permits;
          }
          expect(turnsBesideClients()).toBe(held.filter((each) => each.kind === "turn").length);
        }
        for (const { holder } of held) holder[Symbol.dispose]();
        const all = Array.from({ length: SHARE }, () => MAKERS.turn("a"));
        expect(refusalOf(() => MAKERS.turn("a"))).toBe(429);
        for (const holder of all) holder[Symbol.dispose]();
      }),
    );
  });

  it("are reserved for later tenants: a quarter of those that the earlier tenant found, in any pieces", () => {
    const pieces = fc.array(fc.array(length, { minLength: 1, maxLength: 5 }), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(pieces, (tenants) => {
        const all = 1024;
        using scope = new DisposableStack();
        let free = all;
        for (const [at, lengths] of [...tenants, [0]].entries()) {
          const found = free;
          // Repeats this while the tenant gets permits.
          for (let refused = 0, turn = 0; refused <= lengths.length; turn += 1) {
            const length = refused < lengths.length ? (lengths[turn % lengths.length] ?? 0) : 0;
            const refusal = refusalOf(() => scope.use(new Permits("turn", ownerOf(`tenant ${at}`, all), length)));
            if (refusal === undefined) free -= Math.min((all * 3) / 4, 1 + Math.floor(length / LENGTH));
            refused = refusal === undefined ? 0 : refused + 1;
          }
          expect(free).toBeGreaterThanOrEqual(Math.floor(found / 4));
          expect(free).toBeLessThan(found / 4 + 1);
        }
      }),
      { numRuns: 30 },
    );
  });

  it("give the last free one to a tenant that has none", () => {
    using scope = new DisposableStack();
    for (let run = 0; run < ALL - 1; run += 1) scope.use(new Permits("run", ownerOf("a"))).resize(0, true);
    expect(refusalOf(() => new Permits("turn", ownerOf("a"), 0))).toBe(429);
    scope.use(new Permits("turn", ownerOf("b"), 0));
    expect(refusalOf(() => new Permits("turn", ownerOf("c"), 0))).toBe(503);
  });

  it("admit one piece of work of any length if there is no other", () => {
    for (const length of [20 * LENGTH, 2 ** 40]) {
      using permits = new Permits("turn", ownerOf("a"), length);
      expect(permits).toBeDefined();
      using body = new Permits("body", ownerOf("b"));
      expect(refusalOf(() => body.resize(length))).toBe(503);
    }
  });
});
