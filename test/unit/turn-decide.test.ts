import { ApiError } from "@responses-edge/responses-api/errors";
import {
  type Done,
  decide,
  type GenerationDone,
  type NoAnswer,
  steered,
  type TurnFacts,
} from "@responses-edge/turn/decide";
import { readLoggedTurn } from "@responses-edge/turn/resume";
import { newTurnState, type TurnState } from "@responses-edge/turn/state";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { newOutput } from "./turn-rig.ts";

/** A turn's next step, by its state and the result of its last step. */

const FACTS: TurnFacts = { compaction: undefined, maxOutputTokens: Number.POSITIVE_INFINITY, isUnseen: false };

function loggedBy(act: (rig: ReturnType<typeof newOutput>) => void): TurnState {
  const rig = newOutput();
  rig.output.response.start();
  act(rig);
  return readLoggedTurn(rig.lines);
}

const said = () => loggedBy(({ output }) => output.round.apply({ kind: "text", text: "a" }));
const state = (changed: Partial<TurnState> = {}): TurnState => ({ ...newTurnState(), ...changed });
const generated = (changed: Partial<GenerationDone> = {}): GenerationDone => ({
  did: "generate",
  fault: undefined,
  finish: "stop",
  noAnswer: undefined,
  calls: 0,
  waitsForClient: false,
  mayAnswerWithoutTools: false,
  spentTokens: 0,
  disregarded: undefined,
  ...changed,
});
const broken: NoAnswer = { kind: "broken", why: "a call of 'f'", messages: [{ role: "tool" }] };
const unusable: NoAnswer = { kind: "ask_again", why: "a call of 'f'", change: { onlyOffered: true } };
const unformatted: NoAnswer = { kind: "ask_again", change: { isFinal: true } };
const fault = { status: "failed", error: new ApiError({ status: 502, message: "Gone.", code: "gone" }) } as const;

const ends = (status: string, rest: object = {}) => ({ kind: "end", outcome: { status, ...rest } });
const completed = ends("completed");
const outOfTokens = ends("incomplete", { reason: "max_output_tokens" });

describe("a turn that is steered", () => {
  const ended = ends("incomplete", { reason: "steered" });
  const next = (done: Done, of = state()) => steered(decide(of, done, FACTS), done);

  it("sends its model no more requests, and is incomplete if the model was interrupted", () => {
    expect(next(generated({ finish: "length" }))).toEqual(ended);
    expect(next({ did: "prepare" })).toEqual(ended);
    expect(next({ did: "answer", waitsForClient: false, isFull: false, disregarded: undefined })).toEqual(ended);
    expect(next(generated({ noAnswer: unusable }))).toEqual(ended);
  });

  it("answers its model's calls, and ends normally if nothing else is left to do", () => {
    expect(next(generated({ calls: 1 }))).toEqual({ kind: "answer", again: [] });
    expect(next(generated())).toEqual(completed);
    expect(next(generated({ fault, finish: "length" }))).toEqual({ kind: "end", outcome: fault });
  });
});

describe("the first step", () => {
  const begin = (of: TurnState, mustPrepare = false, facts = FACTS) => decide(of, { did: "begin", mustPrepare }, facts);

  it("of a new turn asks its model, also after its first events were logged", () => {
    expect(begin(state())).toEqual({ kind: "generate" });
    expect(begin(loggedBy(() => {}))).toEqual({ kind: "generate" });
    expect(begin(state(), false, { ...FACTS, compaction: "managed" })).toEqual({ kind: "compact" });
  });

  it("resumes a generation with output or sampled tokens", () => {
    const sampled = loggedBy(({ output }) => output.round.apply({ kind: "sampled", sampled: { ids: [1] } }));
    expect(begin(said())).toEqual({ kind: "resume" });
    expect(begin(sampled)).toEqual({ kind: "resume" });
  });

  it("answers the calls of a generation that has ended", () => {
    const called = loggedBy(({ output }) => {
      output.round.apply({ kind: "tool_call", index: 0, name: "python", arguments: "1" });
      output.round.end();
      output.beginAnswering([]);
    });
    expect(begin(called)).toEqual({ kind: "answer", again: [] });
  });

  it("is the preparation of tools and compaction if they are needed; a mere compaction needs none", () => {
    expect(begin(said(), true)).toEqual({ kind: "prepare" });
    expect(decide(said(), { did: "prepare" }, FACTS)).toEqual({ kind: "resume" });
    const asked: TurnFacts = { ...FACTS, compaction: "asked" };
    expect(begin(said(), true, asked)).toEqual({ kind: "compact" });
    const compacted = state();
    compacted.round.compacted = true;
    expect(begin(compacted, false, asked)).toEqual(completed);
  });
});

describe("the step after", () => {
  it.each<[what: string, Done, expected: object, facts?: Partial<TurnFacts>]>([
    ["a compaction is the round's question", { did: "compact", fault: undefined }, { kind: "generate" }],
    ["one that was asked for ends", { did: "compact", fault: undefined }, completed, { compaction: "asked" }],
    ["one that has failed ends so", { did: "compact", fault }, { kind: "end", outcome: fault }],
    ["an answer ends", generated(), completed],
    ["one that was cut ends incomplete", generated({ finish: "length", calls: 1 }), outOfTokens],
    [
      "one that was filtered, too",
      generated({ finish: "content_filter" }),
      ends("incomplete", { reason: "content_filter" }),
    ],
    ["a fault ends with it", generated({ fault, calls: 1 }), { kind: "end", outcome: fault }],
    ["calls answers them", generated({ calls: 1 }), { kind: "answer", again: [] }],
    ["a broken call tells the model", generated({ noAnswer: broken }), { kind: "answer", again: broken.messages }],
    [
      "an unusable answer asks again",
      generated({ noAnswer: unusable }),
      { kind: "generate", again: { change: unusable.change, isCounted: true } },
    ],
    [
      "one that has used up the limit ends",
      generated({ noAnswer: unusable, spentTokens: 5 }),
      outOfTokens,
      { maxOutputTokens: 5 },
    ],
    ["calls in vain asks without tools", generated({ mayAnswerWithoutTools: true }), { kind: "answer", again: [] }],
    [
      "the calls of a round begins the next",
      { did: "answer", waitsForClient: false, isFull: false, disregarded: undefined },
      { kind: "generate" },
    ],
    [
      "calls beside the client's ends",
      { did: "answer", waitsForClient: true, isFull: true, disregarded: undefined },
      completed,
    ],
    [
      "calls that have filled the output ends",
      { did: "answer", waitsForClient: false, isFull: true, disregarded: undefined },
      outOfTokens,
    ],
    [
      "an answer that is not what was asked for fails, and says which field it does not keep to",
      generated({ disregarded: "'text.format': its text is no JSON object" }),
      ends("failed", {
        error: expect.objectContaining({
          code: "upstream_disregarded_request",
          message: expect.stringContaining("'text.format'"),
        }),
      }),
    ],
    [
      "one of which nobody has seen anything asks again",
      generated({ disregarded: "'text.format'" }),
      { kind: "generate", again: { disregarded: "'text.format'" } },
      { isUnseen: true },
    ],
    [
      "calls beside the client's that were not offered fails, too",
      { did: "answer", waitsForClient: true, isFull: true, disregarded: "'tools'" },
      ends("failed", { error: expect.objectContaining({ code: "upstream_disregarded_request" }) }),
    ],
  ])("%s", (_what, done, expected, facts = {}) => {
    expect(decide(state(), done, { ...FACTS, ...facts })).toEqual(expected);
  });

  it("three useless answers in a row fails with the reason; the client's calls may be beside one", () => {
    for (const noAnswer of [broken, unusable]) {
      const done = generated({ noAnswer });
      expect(decide(state({ askedAgain: 2 }), done, FACTS)).not.toHaveProperty("outcome");
      expect(decide(state({ askedAgain: 3 }), done, FACTS)).toMatchObject({
        outcome: { status: "failed", error: { message: expect.stringContaining("It ends in a call of 'f'") } },
      });
      expect(decide(state({ askedAgain: 3 }), { ...done, waitsForClient: true }, FACTS)).toEqual(completed);
    }
    expect(decide(state({ askedAgain: 3 }), generated({ noAnswer: unformatted }), FACTS)).toMatchObject({
      again: { isCounted: false },
    });
  });
});

const generations: fc.Arbitrary<GenerationDone> = fc.record({
  did: fc.constant("generate" as const),
  fault: fc.constantFrom(undefined, fault, { status: "cancelled" } as const),
  finish: fc.constantFrom(
    "stop" as const,
    "tool_calls" as const,
    "length" as const,
    "content_filter" as const,
    undefined,
  ),
  noAnswer: fc.constantFrom(undefined, broken, unusable, unformatted),
  calls: fc.nat({ max: 2 }),
  waitsForClient: fc.boolean(),
  mayAnswerWithoutTools: fc.boolean(),
  spentTokens: fc.nat({ max: 9 }),
  disregarded: fc.constantFrom(undefined, "'tool_choice'"),
});

describe("after any generation", () => {
  it("a turn is completed only with an answer, and never requests more than the limit", () => {
    fc.assert(
      fc.property(
        generations,
        fc.nat({ max: 5 }),
        fc.nat({ max: 9 }),
        fc.boolean(),
        (done, askedAgain, maxOutputTokens, isUnseen) => {
          const step = decide(state({ askedAgain }), done, { ...FACTS, maxOutputTokens, isUnseen });
          if (done.fault) expect(step).toEqual({ kind: "end", outcome: done.fault });
          if (step.kind === "end" && step.outcome.status === "completed") {
            expect(done.finish === "length" || done.finish === "content_filter").toBe(false);
            expect(done.calls).toBe(0);
            expect(done.disregarded).toBeUndefined();
            if (!done.waitsForClient) expect(done.noAnswer).toBeUndefined();
          }
          if (step.kind === "generate") {
            expect(done.spentTokens).toBeLessThan(maxOutputTokens);
            const { again } = step;
            if (again && "disregarded" in again) expect(isUnseen).toBe(true);
            if (again && ("disregarded" in again || again.isCounted)) expect(askedAgain).toBeLessThan(3);
          }
          if (step.kind === "answer" && step.again.length > 0) expect(askedAgain).toBeLessThan(3);
          expect(["answer", "end", "generate"]).toContain(step.kind);
        },
      ),
    );
  });
});
