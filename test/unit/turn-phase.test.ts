import { expect, it } from "vitest";
import { readLoggedTurn } from "../../src/turn/logged-turn.ts";
import { firstPhase } from "../../src/turn/phase.ts";
import { newBuilder } from "./turn-rig.ts";

/** Where a turn begins, by what its log tells. */

function loggedBy(act: (rig: ReturnType<typeof newBuilder>) => void) {
  const rig = newBuilder();
  rig.builder.start();
  act(rig);
  return readLoggedTurn(rig.lines);
}

it("a new turn asks its model; one that has only been announced does, too", () => {
  expect(firstPhase(readLoggedTurn([]), false)).toEqual({ kind: "generate" });
  expect(
    firstPhase(
      loggedBy(() => {}),
      false,
    ),
  ).toEqual({ kind: "generate" });
});

it("a generation that has said or sampled something is taken up", () => {
  const said = loggedBy(({ builder }) => builder.apply({ kind: "text", text: "a" }));
  const sampled = loggedBy(({ builder }) => builder.apply({ kind: "sampled", sampled: { ids: [1] } }));
  expect(firstPhase(said, false)).toEqual({ kind: "take_up" });
  expect(firstPhase(sampled, false)).toEqual({ kind: "take_up" });
});

it("calls of an ended generation are answered", () => {
  const state = loggedBy(({ builder }) => {
    builder.apply({ kind: "tool_call", index: 0, name: "python", arguments: "1" });
    builder.endGeneration();
    builder.beginAnswering([]);
  });
  expect(firstPhase(state, false)).toEqual({ kind: "answer" });
});

it("what must be prepared comes before all of it", () => {
  const said = loggedBy(({ builder }) => builder.apply({ kind: "text", text: "a" }));
  expect(firstPhase(said, true)).toEqual({ kind: "prepare", next: { kind: "take_up" } });
});
