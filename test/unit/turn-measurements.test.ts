import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { Usage } from "@responses-edge/responses-api/response";
import type { Engine, ModelDelta, Prompt } from "@responses-edge/turn/contract/engine";
import { type Measurements, newMeasurements } from "@responses-edge/turn/contract/measurements";
import { Plugins } from "@responses-edge/turn/contract/plugin";
import { Generations } from "@responses-edge/turn/generation";
import type { RoundPrompt } from "@responses-edge/turn/prompt";
import { describe, expect, it } from "vitest";
import { counted } from "../hostile/counting.ts";
import { ADDRESS, newOutput } from "./turn-rig.ts";

/** A turn's measurements of its model calls, without work per token. */

const usage: Usage = {
  input_tokens: 7,
  input_tokens_details: { cached_tokens: 3, cache_write_tokens: 0 },
  output_tokens: 5,
  output_tokens_details: { reasoning_tokens: 2 },
  total_tokens: 12,
};

/**
 * Generates an answer of `reads` upstream reads. Gives the number of clock reads, and the measurements that were read.
 */
async function generate(reads: number, measured: Measurements) {
  let now = 1_000;
  let asked = 0;
  let nexts = 0;
  const engine = {
    unboundThinking: () => undefined,
    generate: async () => ({
      [Symbol.asyncIterator]: () => ({
        next: async (): Promise<IteratorResult<ModelDelta[]>> => {
          nexts += 1;
          if (nexts <= reads) return { done: false, value: [{ kind: "text", text: "x" }] };
          if (nexts > reads + 1) return { done: true, value: undefined };
          return {
            done: false,
            value: [
              { kind: "usage", usage },
              { kind: "finish", reason: "stop" },
            ],
          };
        },
      }),
    }),
  } as unknown as Engine;
  const { output } = newOutput();
  const prompt = { fitting: async () => ({ model: "m" }) as Prompt } as RoundPrompt;
  const clock = () => {
    asked += 1;
    now += 10;
    return now;
  };
  const observed = counted(measured);
  const options = {
    asked: {
      ...{ request: {} as CreateRequest, address: ADDRESS, model: { name: "m", upstream: "m" } },
      ...{ cacheSalt: "", createdAt: 0 },
    },
    model: { engine, isServerGone: async () => false, leaveServer: () => {}, replica: () => "gpu-1" },
    bounds: {
      maxRetries: 0,
      maxFruitless: 0,
      outageMs: 0,
      outputLength: 1_000_000,
      maxRounds: 32,
      repetitionGuard: "on" as const,
    },
    tools: { plugins: new Plugins([]), session: undefined },
    host: { signal: new AbortController().signal, clock, measured: observed.value },
  };
  const generations = new Generations(options, output, prompt);
  const outcome = await generations.run(generations.begin());
  return { outcome, asked, nexts, reads: observed.reads() };
}

describe("a generation", () => {
  it("notes its beginning, its acceptance, its first token, its end, and its usage", async () => {
    const measured = newMeasurements();
    expect((await generate(3, measured)).outcome).toBeUndefined();
    expect(measured.modelCalls).toEqual([
      {
        ...{ span: "", round: 0, purpose: "round" },
        ...{ begunAt: 1_010, acceptedAt: 1_020, firstChunkAt: 1_030, endedAt: 1_040 },
        tokens: { input: 7, cached: 3, output: 5, reasoning: 2 },
        ...{ model: "m", replica: "gpu-1", queuedMs: 0, attempts: 0, finishReason: "stop", error: undefined },
      },
    ]);
  });

  it("does the same work for measurements with any number of tokens", async () => {
    const few = await generate(2, newMeasurements());
    const many = await generate(2_000, newMeasurements());
    expect([many.asked, many.reads]).toEqual([few.asked, few.reads]);
  });
});
