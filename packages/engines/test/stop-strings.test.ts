import { StopStrings } from "@responses-edge/engines/stop-strings";
import { CHANNEL, END, type HarmonyDelta, HarmonyParser, MESSAGE, RETURN, START } from "@responses-edge/harmony";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

/**
 * The part of a text that readers get, by the definition: up to the string that is complete first, the longest of
 * these.
 */
function shownOf(text: string, stops: readonly string[], included: boolean): string {
  for (let end = 1; end <= text.length; end++) {
    const found = stops.filter((stop) => text.slice(0, end).endsWith(stop)).sort((a, b) => b.length - a.length)[0];
    if (found !== undefined) return included ? text.slice(0, end) : text.slice(0, end - found.length);
  }
  return text;
}

/** Splits a text into pieces of the given length. */
function cut(text: string, lengths: readonly number[]): string[] {
  const parts: string[] = [];
  for (let at = 0, index = 0; at < text.length; index++) {
    const length = lengths[index % lengths.length] ?? 1;
    parts.push(text.slice(at, at + length));
    at += length;
  }
  return parts;
}

function textOf(deltas: readonly HarmonyDelta[]): string {
  return deltas.map((delta) => (delta.kind === "text" ? delta.text : "")).join("");
}

// Few letters, so that strings are found, overlap, and nearly are.
const letters = fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 24 });
const stops = fc.array(fc.string({ unit: fc.constantFrom("a", "b", "c"), minLength: 1, maxLength: 6 }), {
  minLength: 1,
  maxLength: 4,
});
const lengths = fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 5 });

describe("stop strings", () => {
  it("end the answer where they are complete, and not before, for any chunking", () => {
    fc.assert(
      fc.property(letters, letters, stops, lengths, fc.boolean(), (thoughts, answer, strings, sizes, included) => {
        const parser = new HarmonyParser({
          functions: new Map(),
          builtins: new Set(),
          stop: new StopStrings(strings, included),
        });
        const deltas: HarmonyDelta[] = [];
        const sizedUp = (text: string) => cut(text, sizes);
        const before = [CHANNEL, "analysis", MESSAGE, ...sizedUp(thoughts), END, START, "assistant"];
        const pieces = [...before, CHANNEL, "final", MESSAGE, ...sizedUp(answer)];
        const expected = shownOf(answer, strings, included);
        for (const piece of pieces) {
          parser.push([piece], 1, deltas);
          // Deltas that were sent cannot be withdrawn.
          expect(expected.startsWith(textOf(deltas))).toBe(true);
        }
        parser.push([RETURN], 1, deltas);
        parser.end("stop", deltas);
        expect(textOf(deltas)).toBe(expected);
        const reasoning = deltas.map((delta) => (delta.kind === "reasoning" ? delta.text : "")).join("");
        expect(reasoning).toBe(thoughts);
        const last = deltas.findLast((delta) => delta.kind === "message");
        expect(last?.message).toMatchObject({ channel: "final", content: [{ text: expected }] });
      }),
      { numRuns: 500 },
    );
  });

  it("hold back only text that may become one of them", () => {
    const found = new StopStrings(["abcd", "zz"], false);
    expect(found.push("xab")).toBeUndefined();
    expect(found.buffered).toBe(2);
    expect(found.push("cx")).toBeUndefined();
    expect(found.buffered).toBe(0);
  });

  it("cost no more where text and string are of one letter", () => {
    const string = "a".repeat(50_000);
    const found = new StopStrings([`${string}b`], false);
    for (let count = 0; count < 100; count++) expect(found.push(string)).toBeUndefined();
    expect(found.push("b")).toBe(-50_000);
  });
});
