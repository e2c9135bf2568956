import { fuse } from "@responses-edge/vector-search";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const lists = fc.array(
  fc.record({
    ids: fc.uniqueArray(fc.nat({ max: 30 }), { maxLength: 20 }),
    weight: fc.integer({ min: 0, max: 4 }),
  }),
  { minLength: 1, maxLength: 4 },
);

describe("reciprocal rank fusion", () => {
  it("gives each id of a list with weight once, by a score from 0 to 1, best first", () => {
    fc.assert(
      fc.property(lists, (given) => {
        const fused = fuse(given);
        const weighing = new Set(given.flatMap(({ ids, weight }) => (weight > 0 ? ids : [])));
        expect(new Set(fused.map(({ id }) => id))).toEqual(weighing);
        expect(fused).toHaveLength(weighing.size);
        fused.forEach(({ score }, index) => {
          expect(score).toBeGreaterThan(0);
          expect(score).toBeLessThanOrEqual(1.000001);
          expect(score).toBeLessThanOrEqual(fused[index - 1]?.score ?? 1.000001);
        });
      }),
    );
  });

  it("keeps the order of a list that stands alone", () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat()), (ids) => {
        expect(fuse([{ ids, weight: 0.3 }]).map(({ id }) => id)).toEqual(ids);
      }),
    );
  });

  it("puts entries of both lists before entries of one, with their ranks in each", () => {
    const fused = fuse([
      { ids: [1, 2], weight: 1 },
      { ids: [3, 2], weight: 1 },
    ]);
    expect(fused.map(({ id, ranks }) => [id, ranks])).toEqual([
      [2, [2, 2]],
      [1, [1, undefined]],
      [3, [undefined, 1]],
    ]);
    expect(
      fuse([
        { ids: [1], weight: 1 },
        { ids: [1], weight: 2 },
      ])[0]?.score,
    ).toBeCloseTo(1);
  });
});
