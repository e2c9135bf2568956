import { FunctionNames } from "@responses-edge/engines/harmony/function-names";
import { afterEach, expect, it, vi } from "vitest";

afterEach(() => vi.restoreAllMocks());

it("names that look the same to the model are distinguished, with work linear in their number", () => {
  const count = 20_000;
  // All of them are `a_…_` as identifiers, and half of the numbered ones are taken.
  const names = Array.from(
    { length: count },
    (_, index) => `a${index.toString(2).padStart(15, "0").replaceAll("0", "-").replaceAll("1", ".")}`,
  );
  const taken = Array.from({ length: count / 2 }, (_, index) => `a${"_".repeat(15)}_${2 * index + 2}`);
  const lookUps = vi.spyOn(Map.prototype, "has");
  const functions = new FunctionNames([...names, ...taken], []);
  expect(lookUps.mock.calls.length).toBeLessThan(8 * count);
  const shown = new Set([...names, ...taken].map((name) => functions.shown(name)));
  expect(shown.size).toBe(names.length + taken.length);
  for (const name of names) expect(functions.written.get(functions.shown(name))).toBe(name);
});
