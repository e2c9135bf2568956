import type { Usage } from "@responses-edge/responses-api/response";
import type { ModelDelta } from "@responses-edge/turn/contract/engine";
import { addUsage, withLost } from "@responses-edge/turn/response";
import { over, resumed } from "@responses-edge/turn/resume";
import { minus } from "@responses-edge/turn/state";
import { describe, expect, it } from "vitest";

async function* generation(...batches: ModelDelta[][]) {
  yield* batches;
}

async function deltasOf(all: AsyncIterable<ModelDelta[]>): Promise<ModelDelta[]> {
  return (await Array.fromAsync(all)).flat();
}

function usage(input: number, output: number, reasoning = 0): Usage {
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: reasoning },
    total_tokens: input + output,
  };
}

const text = (said: string): ModelDelta => ({ kind: "text", text: said });

describe("a resumed generation", () => {
  it("leaves out the text that the reader already has, for any cuts", async () => {
    const said = await deltasOf(resumed(generation([text(" wor")], [text("ld!")]), " world", undefined));
    expect(said).toMatchObject([{ text: "" }, { text: "!" }]);
  });

  it("sends everything that differs from the output before", async () => {
    const said = await deltasOf(resumed(generation([text(" we"), text(" world")]), " world", undefined));
    expect(said).toMatchObject([{ text: "e" }, { text: " world" }]);
  });

  it("has the usage of the whole: text from before counts as output, and once", async () => {
    const before = { prompt: 10, reasoning: 2, isText: true };
    const both = generation([{ kind: "usage", usage: usage(15, 3, 3) }], [{ kind: "usage", usage: usage(1, 1) }]);
    const [first, second] = await deltasOf(resumed(both, "", before));
    expect(first).toMatchObject({ usage: { input_tokens: 10, output_tokens: 8, total_tokens: 18 } });
    expect(first).toMatchObject({ usage: { output_tokens_details: { reasoning_tokens: 2 } } });
    expect(second).toMatchObject({ usage: { input_tokens: 1, output_tokens: 1 } });
  });

  it("without a rest of its token limit ends as such, with its usage if it is known", async () => {
    expect(await deltasOf(over(5, undefined))).toEqual([{ kind: "finish", reason: "length" }]);
    const [told] = await deltasOf(over(5, { prompt: 10, reasoning: 2, isText: true }));
    expect(told).toMatchObject({ usage: { input_tokens: 10, output_tokens: 5, total_tokens: 15 } });
  });
});

describe("usage", () => {
  it("of several rounds is their sum, with a list of each; the growth of a prompt is tools' output", () => {
    const two = addUsage(addUsage(null, usage(10, 5)), usage(22, 3));
    expect(two).toMatchObject({ input_tokens: 32, output_tokens: 8, input_tokens_per_turn: [10, 22] });
    expect(two.tool_output_tokens_per_turn).toEqual([0, 7]);
  });

  it("has the lost output as output", () => {
    expect(withLost(usage(10, 5, 1), { all: 3, reasoning: 2 })).toMatchObject({
      output_tokens: 8,
      output_tokens_details: { reasoning_tokens: 3 },
      total_tokens: 18,
    });
    expect(minus({ all: 1, reasoning: 0 }, { all: 3, reasoning: 2 })).toEqual({ all: 0, reasoning: 0 });
  });
});
