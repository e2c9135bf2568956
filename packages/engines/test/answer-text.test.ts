import { AnswerText } from "@responses-edge/engines/chat/chunks";
import { StopStrings } from "@responses-edge/engines/stop-strings";
import type { FinishReason, ModelDelta } from "@responses-edge/turn/contract/engine";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

/** A chat model's output, in its order. */
type Said = { kind: "text"; text: string } | { kind: "thought" | "call" };

const saying = fc.array(
  fc.oneof(
    fc.constantFrom("\n", "\n\n", " ", "word", " word", ".\n", "STOP", "ST", "OP").map((text) => ({
      kind: "text" as const,
      text,
    })),
    fc.constantFrom({ kind: "thought" as const }, { kind: "call" as const }),
  ),
  { maxLength: 12 },
);

/** All that comes out, with `|` for each thought and call. */
function shown(said: readonly Said[], reason: FinishReason, stop?: string): string {
  const text = new AnswerText({ stop: stop === undefined ? undefined : new StopStrings([stop], false) });
  const out: (ModelDelta | "|")[] = [];
  for (const each of said) {
    const deltas: ModelDelta[] = [];
    if (each.kind === "text") text.push(each.text, [], deltas);
    else text.interrupt(each.kind, deltas);
    out.push(...deltas, ...(each.kind === "text" ? [] : (["|"] as const)));
    if (text.stopped) return given(out);
  }
  const last: ModelDelta[] = [];
  text.end(reason, last);
  return given([...out, ...last]);
}

function given(out: readonly (ModelDelta | "|")[]): string {
  return out.map((each) => (each === "|" ? each : each.kind === "text" ? each.text : "")).join("");
}

/** The same by definition: each run of text, up to the next thought or call, is shown unless it is blank. */
function wanted(said: readonly Said[], reason: FinishReason, stop?: string): string {
  const runs = said
    .map((each) => (each.kind === "text" ? each.text : "|"))
    .join("")
    .split("|");
  const isTextOnly = said.every(({ kind }) => kind !== "call");
  let all = "";
  for (const [index, run] of runs.entries()) {
    const isLast = index === runs.length - 1;
    const start = run.length - run.trimStart().length;
    const at = stop === undefined ? -1 : run.indexOf(stop, start);
    if (at >= 0) return all + run.slice(0, at);
    if (run.trim() !== "" || (isLast && isTextOnly && reason === "stop")) all += run;
    if (!isLast) all += "|";
  }
  return all;
}

describe("the text of a chat model's answer", () => {
  it("is all but white space between thoughts and calls, up to a stop string", () => {
    const reasons = fc.constantFrom<FinishReason>("stop", "length", "tool_calls");
    const stops = fc.constantFrom(undefined, "STOP", "word\n", "\n\n");
    fc.assert(
      fc.property(saying, reasons, stops, (said, reason, stop) => {
        expect(shown(said, reason, stop)).toBe(wanted(said, reason, stop));
      }),
      { numRuns: 5_000 },
    );
  });

  it("comes as soon as there is a word", () => {
    const text = new AnswerText();
    const out: ModelDelta[] = [];
    text.push("\n", [], out);
    text.push("\n", [], out);
    expect(out).toEqual([]);
    text.push("Hi", [], out);
    text.push(" \n", [], out);
    expect(out).toEqual([
      { kind: "text", text: "\n\nHi" },
      { kind: "text", text: " \n" },
    ]);
  });

  it("continues an open message with white space", () => {
    const out: ModelDelta[] = [];
    new AnswerText({ continues: true }).push("\n", [], out);
    expect(out).toEqual([{ kind: "text", text: "\n" }]);
  });
});
