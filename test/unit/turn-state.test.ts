import { asLink, CitationMarks } from "@responses-edge/hosted-tools/browser/citation-marks";
import type { OutputItem } from "@responses-edge/responses-api/items/registry";
import type { ModelDelta } from "@responses-edge/turn/contract/engine";
import { isRecord } from "@responses-edge/turn/records";
import { readLoggedTurn } from "@responses-edge/turn/resume";
import type { Sealer } from "@responses-edge/turn/sealed-content/sealing";
import { newTurnState, type TurnState } from "@responses-edge/turn/state";
import type { TurnOutput } from "@responses-edge/turn/turn-output";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { newOutput, type RigOptions } from "./turn-rig.ts";

/** One step of a turn: an action of its model, its tools or its model server. */
type Step = { deltas: ModelDelta[] } | { step: "answer" | "outage" | "break off" | "list"; choice: number };

const texts = fc.constantFrom("a", " b", "【1†L1", "-L2】", "【", "no mark】", "", "你好", '"');
const indices = fc.integer({ min: 0, max: 3 });
const logprobs = [{ token: "a", logprob: -1, bytes: [97], top_logprobs: [] }];

const deltas: fc.Arbitrary<ModelDelta> = fc.oneof(
  texts.map((text): ModelDelta => ({ kind: "text", text })),
  texts.map((text): ModelDelta => ({ kind: "text", text, logprobs })),
  texts.map((text): ModelDelta => ({ kind: "reasoning", text })),
  texts.map((text): ModelDelta => ({ kind: "refusal", text })),
  fc
    .tuple(
      indices,
      fc.constantFrom("f", "wiki__ask", "wiki__edit", "browser_search", "python", "apply", "agents__close", "shell"),
      fc.constantFrom("", '{"q', '{"query":"x"}', "print(1)", '{"input": "a', '{"commands":["ls"]}'),
    )
    .map(([index, name, json]): ModelDelta => ({ kind: "tool_call", index, name, arguments: json })),
  fc
    .tuple(indices, fc.constantFrom("", '":1}', "x"))
    .map(([index, json]): ModelDelta => ({ kind: "tool_call", index, arguments: json })),
  indices.map((index): ModelDelta => ({ kind: "call_cut", index })),
  fc.constant<ModelDelta>({ kind: "item_done" }),
  fc.tuple(indices, fc.constantFrom("reasoning", "message", "call", undefined)).map(
    ([index, itemKind]): ModelDelta => ({
      kind: "message",
      index,
      message: { index },
      ...(itemKind && { itemKind }),
    }),
  ),
  indices.map((id): ModelDelta => ({ kind: "sampled", sampled: { ids: [id] } })),
  fc.constant<ModelDelta>({ kind: "broken", why: "no such tool", messages: [{ role: "tool" }] }),
  fc.constant<ModelDelta>({
    kind: "usage",
    usage: {
      input_tokens: 3,
      input_tokens_details: { cached_tokens: 1, cache_write_tokens: 0 },
      output_tokens: 2,
      output_tokens_details: { reasoning_tokens: 1 },
      total_tokens: 5,
    },
  }),
);

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    {
      weight: 4,
      arbitrary: fc.array(deltas, { minLength: 1, maxLength: 8 }).map((batch): Step => ({ deltas: batch })),
    },
    fc
      .tuple(fc.constantFrom("answer", "outage", "break off", "list"), indices)
      .map(([step, choice]): Step => ({ step, choice }) as Step),
  ),
  { minLength: 1, maxLength: 12 },
);

/** The form in which reasoning is shown, and its sealing. */
const reasoning: fc.Arbitrary<RigOptions> = fc
  .tuple(fc.constantFrom("text", "summary", "hidden"), fc.constantFrom("chat" as const, "harmony" as const, undefined))
  .map(([form, engine]) => ({
    request: { ...(form === "summary" && { reasoning: { summary: "auto" as const } }) },
    secrets: { hidesReasoning: form === "hidden", seal: engine && { sealer, engine } },
  }));

/** A sealer that does not encrypt, so that tests can read the content. */
const sealer: Sealer = {
  seal: (_, payload) => JSON.stringify(payload),
  open: (_, blob) => ({ payload: JSON.parse(blob) as unknown }),
};

const PAGE = { url: "https://example.com/a", title: "A" };
const citations: RigOptions = { session: { citations: () => new CitationMarks(() => asLink(PAGE)) } };

function take(output: TurnOutput, step: Step): void {
  if ("deltas" in step) {
    for (const delta of step.deltas) output.round.apply(delta);
    output.round.recordBuffered();
    return;
  }
  const { state } = output;
  switch (step.step) {
    case "answer":
      answer(output, step.choice);
      return;
    case "outage":
      output.writer.record({ outage: step.choice });
      return;
    case "break off": {
      const item = output.round.partialItems[step.choice];
      if (!item || item.type === "function_call" || item.type === "custom_tool_call") return;
      output.writer.record({ lost: output.round.breakOff(item.id) });
      return;
    }
    case "list": {
      // Only before any output.
      if (state.output.some(({ type }) => type !== "mcp_list_tools")) return;
      const index = output.beginList(`server ${step.choice}`);
      if (step.choice > 0) output.endList(index, step.choice > 1 ? { tools: [] } : { error: "no" }, "origin");
    }
  }
}

/** Answers all calls of the round except the last `left` ones. If none is left, the next round begins. */
function answer(output: TurnOutput, left: number): void {
  output.round.end();
  const { noAnswer } = output.round;
  output.beginAnswering(noAnswer?.kind === "broken" ? [...noAnswer.messages] : []);
  const calls = [...output.calls.pending.values()];
  for (const call of calls.slice(0, calls.length - left)) {
    output.calls.start(call);
    const exchange = { name: call.name, arguments: call.arguments, output: "o", step: "s", memory: { n: left } };
    output.calls.finish(
      call,
      { output: "o", failed: left === 0 },
      { item: call.item, exchange, messages: [{ role: "tool" }] },
    );
  }
  if (output.calls.pending.size === 0) output.nextRound();
}

/** The state as JSON. An unfinished item has the state that its events give. */
function told(state: TurnState, done: ReadonlySet<string>): unknown {
  const output = state.output.map((item) => (done.has(item.id) ? item : toldItem(item)));
  const { superseded, thoughts } = state;
  return JSON.parse(JSON.stringify({ ...state, superseded: [...superseded], thoughts: [...thoughts], output }));
}

/** Statuses, results and plans of an item are in its last event. */
function toldItem(item: OutputItem): unknown {
  const { id, type } = item;
  const text = "arguments" in item ? item.arguments : "code" in item ? item.code : undefined;
  const summary = "summary" in item ? item.summary : undefined;
  return { id, type, text, summary, content: "content" in item ? item.content : undefined };
}

/** The ids of items that are done in these lines. */
function doneBy(lines: readonly string[]): Set<string> {
  const events = lines.filter((line) => !isRecord(line)).map((line) => JSON.parse(line) as Record<string, unknown>);
  const done = events.filter(({ type }) => type === "response.output_item.done");
  return new Set(done.map(({ item }) => (item as OutputItem).id));
}

/** Runs the steps. After each line, the state from the log must equal the turn's. */
function run(all: readonly Step[], from: { state: TurnState; lines: string[] }, options: RigOptions = {}): string[] {
  const { lines } = from;
  const live: unknown[] = [];
  const { output, state } = newOutput(
    { ...from, onLine: (now) => live.push(told(structuredClone(now), doneBy(lines))) },
    { ...citations, ...options },
  );
  const before = lines.length;
  output.response.start();
  for (const step of all) take(output, step);
  for (const [index, expected] of live.entries()) {
    const cut = lines.slice(0, before + index + 1);
    expect(told(readLoggedTurn(cut), doneBy(cut))).toEqual(expected);
  }
  // No step has changed anything without a line.
  expect(told(readLoggedTurn(lines), doneBy(lines))).toEqual(told(state, doneBy(lines)));
  return lines;
}

describe("the state of a turn", () => {
  it("equals the state from its log at every line", () => {
    fc.assert(
      fc.property(steps, reasoning, (all, options) => {
        run(all, { state: newTurnState(), lines: [] }, options);
      }),
      { numRuns: 25 },
    );
  });

  it("equals it also after a crash at any line", () => {
    fc.assert(
      fc.property(steps, steps, fc.nat(), reasoning, (first, second, at, options) => {
        const lines = run(first, { state: newTurnState(), lines: [] }, options);
        const kept = lines.slice(0, at % (lines.length + 1));
        run(second, { state: readLoggedTurn(kept), lines: kept }, options);
      }),
      { numRuns: 15 },
    );
  });

  it("equals it if a call from before the crash has ended, and arguments without a name follow", () => {
    const call = { kind: "tool_call", index: 0, name: "f", arguments: "" } as const;
    const lines = run([{ deltas: [call, { kind: "item_done" }] }], { state: newTurnState(), lines: [] });
    const isDone = (line: string) => line.includes('"response.output_item.done"');
    // The log has all arguments, but not the end of the call.
    const kept = lines.slice(0, lines.findIndex(isDone) - 1);
    const nameless = { kind: "tool_call", index: 2, arguments: "" } as const;
    const all = run([{ deltas: [call, nameless, { kind: "call_cut", index: 2 }] }], {
      state: readLoggedTurn(kept),
      lines: kept,
    });
    expect(all.filter(isDone)).toHaveLength(1);
  });

  it("is not read from a log with an invalid event, or without an event", () => {
    const event = (type: string, sequence_number: number) => JSON.stringify({ type, sequence_number });
    expect(() => readLoggedTurn([event("response.audio.delta", 0)])).toThrow(SyntaxError);
    expect(() => readLoggedTurn([event("response.created", 0), event("response.in_progress", 2)])).toThrow(SyntaxError);
  });
});
