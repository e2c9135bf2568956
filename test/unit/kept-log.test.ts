import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type EventBlock, failureIn, keepLog, readKeptLog } from "../../src/store/kept-log.ts";
import { deltaHead, EventWriter } from "../../src/turn/output-events.ts";
import { recordLine } from "../../src/turn/records.ts";
import { newTurnState } from "../../src/turn/state.ts";

const address = { home: "h".repeat(22), turn: "t".repeat(10) };

/** The log of a turn that says so. */
function said(say: (writer: EventWriter) => void, obfuscation = true): string[] {
  const lines: string[] = [];
  const sink = { event: (_: string, json: string) => lines.push(json) };
  const state = newTurnState();
  say(new EventWriter(state, { address, sink, obfuscation }));
  return lines;
}

function blocksOf(kept: string, text: string): EventBlock[] {
  const blocks: EventBlock[] = [];
  for (let after = -1; ; after = blocks.at(-1)?.to ?? after) {
    const block = readKeptLog(kept, text, after);
    if (!block) return blocks;
    blocks.push(block);
  }
}

const messageHead = deltaHead("response.output_text.delta", {
  item_id: "msg_1",
  output_index: 0,
  content_index: 0,
});

describe("a kept log", () => {
  const piece = fc.string({ unit: "binary", maxLength: 8 });
  const delta = fc.record({
    kind: fc.constantFrom("text", "arguments", "thought"),
    text: piece,
    logprobs: fc.option(fc.array(fc.record({ token: piece, logprob: fc.double() }), { maxLength: 2 })),
  });
  const whole = fc.record({ kind: fc.constant("other" as const), text: fc.string({ unit: "binary", maxLength: 80 }) });

  it("is read back as it was, from wherever the reader is, whatever was said and is kept of it", () => {
    const logs = fc.array(fc.oneof({ weight: 4, arbitrary: delta }, whole), { maxLength: 60 });
    fc.assert(
      fc.property(logs, fc.boolean(), fc.boolean(), fc.nat(60), (steps, obfuscation, isKept, life) => {
        const write = (some: typeof steps, sequence: number) =>
          said((writer) => {
            for (let index = 0; index < sequence; index += 1) writer.lifecycle("response.queued", "{}");
            for (const step of some) {
              if (step.kind === "other") writer.lifecycle("response.in_progress", JSON.stringify(step));
              else if (step.kind === "arguments")
                writer.delta(
                  "response.function_call_arguments.delta",
                  deltaHead("response.function_call_arguments.delta", { item_id: "fc_1", output_index: 1 }),
                  step.text,
                );
              else if (step.kind === "thought")
                writer.delta(
                  "response.reasoning_text.delta",
                  deltaHead("response.reasoning_text.delta", { item_id: "rs_1", output_index: 2, content_index: 0 }),
                  step.text,
                );
              else
                writer.delta(
                  "response.output_text.delta",
                  messageHead,
                  step.text,
                  `,"logprobs":${JSON.stringify("logprobs" in step ? (step.logprobs ?? []) : [])}`,
                );
            }
          }, obfuscation).slice(sequence);
        // Each life of a run pads with characters of its own.
        const lines = [...write(steps.slice(0, life), 0), ...write(steps.slice(life), Math.min(life, steps.length))];
        const texts = isKept ? steps.map(({ text }) => text).join("") : "";
        const text = JSON.stringify({ id: "resp_1", output: texts, logprobs: steps });
        const kept = keepLog(lines, lines.length, text);
        if (kept === undefined) throw new Error("Not kept.");
        expect(blocksOf(kept, text).flatMap(({ events }) => events)).toEqual(lines);
        for (let after = -1; after < lines.length; after += 7) {
          const block = readKeptLog(kept, text, after);
          expect(block?.events ?? []).toEqual(lines.slice(after + 1, (block?.to ?? after) + 1));
        }
      }),
      { numRuns: 300 },
    );
  });

  it("is at most five bytes a token beyond what is the same for every run, where the turn has its text", () => {
    const words = Array.from({ length: 1_000 }, (_, index) => ` word${index}`);
    const output = JSON.stringify([{ id: "msg_1", content: [{ type: "output_text", text: words.join("") }] }]);
    const lines = said((writer) => {
      for (const word of words) writer.delta("response.output_text.delta", messageHead, word, ',"logprobs":[]');
      writer.lifecycle("response.completed", `{"output":${output}}`);
    });
    const kept = keepLog(lines, lines.length, output) ?? "";
    expect(kept.length).toBeLessThan(5_000);
    expect(kept).not.toContain("word");
    // Whoever reads it holds no more than a block.
    for (const { events } of blocksOf(kept, output)) expect(events.join("").length).toBeLessThan(70_000);
  });

  it("has of its records only why the run has failed", () => {
    const failure = { status: 502, message: "Gone.", type: "server_error", param: null, code: "upstream" } as const;
    const lines = [
      recordLine({ sampled: { ids: [1, 2, 3] } }),
      '{"type":"response.failed","sequence_number":0}',
      recordLine({ failure }),
    ];
    const kept = keepLog(lines, 1, "") ?? "";
    expect(failureIn(kept)).toEqual(failure);
    expect(kept).not.toContain("sampled");
    expect(blocksOf(kept, "")).toEqual([{ from: 0, to: 0, events: [lines[1]] }]);
  });

  it("is none where events are missing, or it is too long to be read at once", () => {
    const lines = ['{"type":"response.created","sequence_number":0}'];
    expect(keepLog(lines, 2, "")).toBeUndefined();
    const event = `{"type":"${"x".repeat(70_000)}"}`;
    const eventsOf = (count: number) => Array.from({ length: count }, () => event);
    expect(keepLog(eventsOf(10), 10, "")).toBeDefined();
    expect(keepLog(eventsOf(10), 10, "x".repeat(30_000_000))).toBeUndefined();
    expect(keepLog(eventsOf(300), 300, "")).toBeUndefined();
  });

  it("has long instructions, which several events repeat, nowhere but in the turn", () => {
    const instructions = Array.from({ length: 400_000 }, (_, index) => `rule ${index}`).join(", ");
    const head = JSON.stringify({ id: "resp_1", status: "completed", instructions });
    const lines = said((writer) => {
      for (const status of ["queued", "in_progress", "completed"] as const)
        writer.lifecycle(`response.${status}`, JSON.stringify({ id: "resp_1", status, instructions }));
    });
    const kept = keepLog(lines, lines.length, head) ?? "";
    expect(kept.length).toBeLessThan(5_000);
    expect(blocksOf(kept, head).flatMap(({ events }) => events)).toEqual(lines);
  });

  it("takes no longer for texts that stand nowhere, and for calls whose arguments come by turns", () => {
    const heads = ["fc_1", "fc_2"].map((item_id, output_index) =>
      deltaHead("response.function_call_arguments.delta", { item_id, output_index }),
    );
    const lines = said((writer) => {
      for (let index = 0; index < 20_000; index += 1)
        writer.delta("response.function_call_arguments.delta", heads[index % 2] ?? "", `nowhere ${index}`);
    });
    const text = "x".repeat(1_000_000);
    const kept = keepLog(lines, lines.length, text) ?? "";
    expect(blocksOf(kept, text).flatMap(({ events }) => events)).toEqual(lines);
  });
});
