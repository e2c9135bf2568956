/// <reference path="../src/wasm.d.ts" />
import {
  Codes,
  cosines,
  type Kernel,
  memoryOf,
  plainKernel,
  simdKernel,
  toCode,
  toInt8,
} from "@responses-edge/vector-search";
import module from "@responses-edge/vector-search/kernel.wasm";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const kernels: [string, () => Kernel][] = [
  ["the SIMD kernel", () => simdKernel(module)],
  ["the plain kernel", plainKernel],
];

/** Embeddings of one length, from a seed: fast-check's own arrays of so many numbers take long to make. */
function embeddings(seed: number, count: number, dimensions: number): Float64Array[] {
  let state = seed >>> 0 || 1;
  const next = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 31 - 1;
  };
  return Array.from({ length: count }, () => Float64Array.from({ length: dimensions }, next));
}

const cases = fc.record({
  seed: fc.nat(),
  count: fc.integer({ min: 1, max: 60 }),
  dimensions: fc.oneof(fc.integer({ min: 1, max: 300 }), fc.constantFrom(384, 768, 1024, 4096)),
});

function bitsApart(one: ArrayLike<number>, other: ArrayLike<number>): number {
  let apart = 0;
  for (let index = 0; index < one.length; index += 1) {
    if ((one[index] ?? 0) > 0 !== (other[index] ?? 0) > 0) apart += 1;
  }
  return apart;
}

describe.each(kernels)("%s", (_, kernel) => {
  it("finds the codes that differ in the fewest bits, as counting them one by one does", () => {
    fc.assert(
      fc.property(cases, fc.integer({ min: 1, max: 20 }), ({ seed, count, dimensions }, wanted) => {
        const [query = [], ...all] = embeddings(seed, count + 1, dimensions);
        const codes = new Codes(kernel(), dimensions);
        all.forEach((each, index) => {
          codes.add(index % 7, index, toCode(each));
        });
        const found = codes.nearest(toCode(query), wanted);
        const expected = all
          .map((each, chunk) => ({ chunk, file: chunk % 7, distance: bitsApart(query, each) }))
          .sort((one, other) => one.distance - other.distance || one.chunk - other.chunk);
        expect(found).toEqual(expected.slice(0, wanted));
      }),
      { numRuns: 30 },
    );
  });

  it("forgets the chunks of files that are removed, and searches those that are wanted", () => {
    fc.assert(
      fc.property(cases, fc.subarray([0, 1, 2, 3, 4]), fc.subarray([0, 1, 2, 3, 4]), (given, removed, unwanted) => {
        const { seed, count, dimensions } = given;
        const [query = [], ...all] = embeddings(seed, count + 1, dimensions);
        const codes = new Codes(kernel(), dimensions);
        all.forEach((each, chunk) => {
          codes.add(chunk % 5, chunk, toCode(each));
        });
        for (const file of removed) codes.remove(file);
        const left = all.map((_, chunk) => chunk).filter((chunk) => !removed.includes(chunk % 5));
        expect(codes.size).toBe(left.length);
        const found = codes.nearest(toCode(query), count, (file) => !unwanted.includes(file));
        const chunks = found.map(({ chunk }) => chunk).toSorted((one, other) => one - other);
        expect(chunks).toEqual(left.filter((chunk) => !unwanted.includes(chunk % 5)));
      }),
      { numRuns: 30 },
    );
  });

  it("gives cosines as floating point does, but for eight bits", () => {
    fc.assert(
      fc.property(cases, ({ seed, count, dimensions }) => {
        const [query = new Float64Array(), ...all] = embeddings(seed, count + 1, dimensions);
        const exact = all.map((each) => dot(query, each) / Math.sqrt(dot(query, query) * dot(each, each)));
        const found = cosines(kernel(), toInt8(query), all.map(toInt8));
        found.forEach((cosine, index) => {
          expect(cosine).toBeCloseTo(exact[index] ?? 0, 1);
        });
      }),
      { numRuns: 30 },
    );
  });

  it("gives vectors of the largest elements their products, and one without direction none", () => {
    const ends = Array.from({ length: 8192 }, () => -1);
    expect(cosines(kernel(), toInt8(ends), [toInt8(ends), toInt8(ends.map((each) => -each))])).toEqual([1, -1]);
    expect(cosines(kernel(), toInt8(ends), [toInt8(ends.map(() => 0))])).toEqual([0]);
  });

  it("holds more than it began with", () => {
    const codes = new Codes(kernel(), 768);
    const all = embeddings(7, 3_000, 768);
    for (const [index, each] of all.entries()) codes.add(index, index, toCode(each));
    const [found] = codes.nearest(toCode(all[2_500] ?? []), 1);
    expect(found).toEqual({ chunk: 2_500, file: 2_500, distance: 0 });
  });
});

it("both kernels give equal numbers", () => {
  fc.assert(
    fc.property(cases, ({ seed, count, dimensions }) => {
      const [query = new Float64Array(), ...all] = embeddings(seed, count + 1, dimensions);
      const [simd, plain] = kernels.map(([, kernel]) => {
        const codes = new Codes(kernel(), dimensions);
        for (const [index, each] of all.entries()) codes.add(index, index, toCode(each));
        return {
          near: codes.nearest(toCode(query), count),
          cosines: cosines(kernel(), toInt8(query), all.map(toInt8)),
        };
      });
      expect(simd).toEqual(plain);
    }),
    { numRuns: 30 },
  );
});

it("100,000 chunks of 768 dimensions take less than 11 MB", () => {
  expect(memoryOf(100_000, 768)).toBeLessThan(11_000_000);
});

it("codes refuse what is not of their length", () => {
  const codes = new Codes(plainKernel(), 768);
  expect(() => codes.add(1, 1, new Uint8Array(100))).toThrow(RangeError);
  expect(() => codes.nearest(toCode(new Float32Array(1_024)), 1)).toThrow(RangeError);
  expect(() => new Codes(plainKernel(), 8_193)).toThrow(RangeError);
});

function dot(one: Float64Array, other: Float64Array): number {
  return one.reduce((sum, each, index) => sum + each * (other[index] ?? 0), 0);
}
