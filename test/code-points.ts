import fc from "fast-check";

const FIRST_SURROGATE = 0xd800;
const SURROGATES = 2_048;
const LAST_CODE_POINT = 0x10ffff;

/**
 * Any code point but a surrogate, as the `unit` of `fc.string`. fast-check's own unit "binary" has the same ones, and
 * first builds a table of all of them in each process: most of a second.
 */
export const codePoint: fc.Arbitrary<string> = fc
  .nat(LAST_CODE_POINT - SURROGATES)
  .map((index) => String.fromCodePoint(index < FIRST_SURROGATE ? index : index + SURROGATES), indexOf);

/** Throws for a value that is no code point, which tells fast-check so. */
function indexOf(value: unknown): number {
  const point = typeof value === "string" ? value.codePointAt(0) : undefined;
  if (point === undefined || value !== String.fromCodePoint(point)) throw new Error("This is no code point.");
  if (point < FIRST_SURROGATE) return point;
  if (point < FIRST_SURROGATE + SURROGATES) throw new Error("This is a surrogate.");
  return point - SURROGATES;
}
