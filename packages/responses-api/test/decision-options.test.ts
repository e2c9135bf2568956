import { joined, probabilitiesOf } from "@responses-edge/responses-api/platform/decision-options";
import { expect, it } from "vitest";

/** The probabilities of options, from the log probabilities of their letters. */

const listed = (token: string, share: number) => ({ token, logprob: Math.log(share) });

it("a letter counts in each of its spellings, and other tokens do not count", () => {
  const token = {
    ...listed("A", 0.3),
    top_logprobs: [listed("A", 0.3), listed(" A", 0.3), listed("B", 0.2), listed("AB", 0.2)],
  };
  const [first, second] = probabilitiesOf(token, 2) ?? [];
  expect(first).toBeCloseTo(0.75);
  expect(second).toBeCloseTo(0.25);
});

it("without a letter there are no probabilities", () => {
  expect(probabilitiesOf({ ...listed("Well", 0.9), top_logprobs: [listed("C", 0.1)] }, 2)).toBeUndefined();
});

it("options of several groups keep the odds that they have in their own group", () => {
  const [a = 0, b = 0, c = 0, d = 0] = joined(
    [
      [0.8, 0.2],
      [0.5, 0.5],
    ],
    [0.6, 0.4],
  );
  expect(a + b + c + d).toBeCloseTo(1);
  expect(a / b).toBeCloseTo(4);
  expect(c / d).toBeCloseTo(1);
  expect(a / c).toBeCloseTo(1.5);
});
