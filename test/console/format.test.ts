import { expect, it } from "vitest";

/** Sizes, as the page writes them. */

const module = new URL("../../packages/console/src/format.ts", import.meta.url).href;
const { size } = (await import(module)) as { size: (bytes: number) => string };

it("sizes have units up to TB", () => {
  const sizes = [999, 1_500, 99_500, 2_000_000, 999_900_000, 1_500_000_000, 2_500_000_000_000].map(size);
  expect(sizes).toEqual(["999 B", "1.5 kB", "100 kB", "2.0 MB", "999.9 MB", "1.5 GB", "2.5 TB"]);
});
