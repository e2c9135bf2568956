import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import type { Place } from "../../src/store/isolate-room.ts";

// Of its own: other tests of this isolate hold something, too.
vi.resetModules();
const { bodyPlace, enterTurn, textPlace, turnsBesideClients } = await import("../../src/store/isolate-room.ts");

const LIMIT = 12;
const SHARE = 9;
const PLACE = 256 * 1024;

const askerOf = (tenant: string) => ({ tenant, config: { maxOpenTurns: LIMIT } });

/** What something of a length is to take. */
const PLACES = {
  turn: (length: number) => Math.min(SHARE, 1 + Math.floor(length / PLACE)),
  body: (length: number) => Math.min(SHARE, length <= 16 * 1024 ? 0 : Math.ceil((3 * length) / PLACE)),
  text: (length: number) => Math.min(SHARE, Math.floor(length / PLACE)),
};

type Kind = keyof typeof PLACES;

const MAKERS: Record<Kind, (tenant: string) => Place> = {
  turn: (tenant) => enterTurn(askerOf(tenant), 0),
  body: (tenant) => bodyPlace(askerOf(tenant)),
  text: (tenant) => textPlace(askerOf(tenant)),
};

/** The status of what it throws. */
function refusalOf(act: () => void): number | undefined {
  try {
    act();
    return undefined;
  } catch (error) {
    return error instanceof Error && "status" in error ? Number(error.status) : Number.NaN;
  }
}

const length = fc.oneof(fc.constant(0), fc.nat(20_000), fc.nat(4 * PLACE), fc.nat(20 * PLACE));
const step = fc.record({
  what: fc.constantFrom("enter", "hold", "hold in any case", "leave"),
  kind: fc.constantFrom<Kind>("turn", "body", "text"),
  tenant: fc.constantFrom("a", "b"),
  which: fc.nat(),
  length,
});

describe("the room of an isolate", () => {
  it("is what is held, whatever is entered, grows, shrinks and leaves: nobody has more, and nothing is lost", () => {
    // Both are about.
    for (const tenant of ["a", "b"]) enterTurn(askerOf(tenant), 0)[Symbol.dispose]();
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const held: { place: Place; kind: Kind; tenant: string; places: number }[] = [];
        const sum = (tenant?: string) =>
          held.reduce((all, each) => all + (tenant === undefined || each.tenant === tenant ? each.places : 0), 0);
        const expected = (tenant: string, more: number) => {
          if (more <= 0) return undefined;
          return sum() + more > LIMIT ? 503 : sum(tenant) + more > SHARE ? 429 : undefined;
        };
        for (const { what, kind, tenant, which, length } of steps) {
          const at = held.length > 0 ? which % held.length : 0;
          const chosen = held[at];
          if (what === "enter") {
            const places = PLACES[kind](0);
            const refusal = expected(tenant, places);
            expect(refusalOf(() => held.push({ place: MAKERS[kind](tenant), kind, tenant, places }))).toBe(refusal);
          } else if (!chosen) continue;
          else if (what === "leave") {
            chosen.place[Symbol.dispose]();
            // Again does nothing.
            chosen.place[Symbol.dispose]();
            chosen.place.fit(length);
            held.splice(at, 1);
          } else {
            const places = PLACES[chosen.kind](length);
            const inAnyCase = what === "hold in any case";
            const refusal = inAnyCase ? undefined : expected(chosen.tenant, places - chosen.places);
            expect(refusalOf(() => chosen.place.fit(length, inAnyCase))).toBe(refusal);
            if (refusal === undefined) chosen.places = places;
          }
          expect(turnsBesideClients()).toBe(held.filter((each) => each.kind === "turn").length);
        }
        for (const { place } of held) place[Symbol.dispose]();
        const all = ["a", "a", "a", "a", "a", "a", "a", "a", "a", "b", "b", "b"].map((tenant) => MAKERS.turn(tenant));
        expect(refusalOf(() => MAKERS.turn("b"))).toBe(503);
        for (const place of all) place[Symbol.dispose]();
      }),
    );
  });
});
