import { createRequest } from "@responses-edge/responses-api/create-bodies";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import type { StreamEvent } from "@responses-edge/responses-api/items/events";
import type { OutputItem } from "@responses-edge/responses-api/items/registry";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { Engine, ModelDelta, Prompt } from "@responses-edge/turn/contract/engine";
import { newMeasurements } from "@responses-edge/turn/contract/measurements";
import { type Plugin, Plugins } from "@responses-edge/turn/contract/plugin";
import type { ToolSession } from "@responses-edge/turn/contract/tool-session";
import type { TurnOptions } from "@responses-edge/turn/options";
import { isRecord, recordLine } from "@responses-edge/turn/records";
import { readLoggedTurn } from "@responses-edge/turn/resume";
import { programFingerprints } from "@responses-edge/turn/sealed-content/program-fingerprint";
import { compactionCodec } from "@responses-edge/turn/sealed-content/sealer";
import { Turn } from "@responses-edge/turn/turn";
import { expect, it } from "vitest";

/** A turn with a scripted model, which records its requests. */

type Round = ModelDelta[] | ((prompt: Prompt) => ModelDelta[]);

function engineOf(rounds: readonly Round[]): Engine & { prompts: Prompt[] } {
  const left = [...rounds];
  const prompts: Prompt[] = [];
  return {
    prompts,
    noteRole: "developer",
    accept: (request) => request,
    mayCall: () => true,
    unboundThinking: () => undefined,
    async generate(prompt) {
      prompts.push(prompt);
      const round = left.shift() ?? [];
      const deltas = typeof round === "function" ? round(prompt) : round;
      return (async function* () {
        for (const delta of deltas) yield [delta];
      })();
    },
    resumption: (prompt, partial) => ({
      prompt: { ...prompt, items: [...prompt.items, ...partial] as [] },
      repeated: "",
    }),
    parts: async () => [],
    rendered: async () => undefined,
    renderedText: async () => "",
    measure: async () => ({ tokens: 10, contextWindow: 1_000 }),
    answerMessages: () => [],
    inputMessages: () => [],
  };
}

interface Told {
  events: StreamEvent[];
  /** Events and records, as a log has them. */
  lines: string[];
  output: OutputItem[];
  status: string;
}

async function tell(engine: Engine, body: object, changed: Partial<TurnOptions> = {}): Promise<Told> {
  const lines: string[] = [];
  const turn = new Turn({
    asked: {
      request: parse(createRequest, { input: "How is the weather?", ...body }),
      address: newTurnAddress(),
      model: { name: "m", upstream: "m" },
      cacheSalt: "",
      createdAt: 0,
    },
    past: {
      history: [],
      replays: [],
      input: [{ type: "message", role: "user", status: "completed", content: [{ type: "input_text", text: "?" }] }],
      removed: [],
    },
    model: { engine, isServerGone: async () => false, leaveServer: () => {} },
    bounds: {
      maxRetries: 1,
      maxFruitless: 1,
      outageMs: 0,
      outputLength: 1_000_000,
      maxRounds: 32,
      repetitionGuard: "on",
    },
    tools: { plugins: new Plugins([]) },
    secrets: {
      hidesReasoning: false,
      seal: undefined,
      compactions: compactionCodec([], ""),
      programs: programFingerprints([], ""),
    },
    host: {
      signal: new AbortController().signal,
      clock: () => 0,
      measured: newMeasurements(),
      sink: {
        event: (_, json) => void lines.push(json),
        record: (record) => void lines.push(recordLine(record)),
        flush: () => undefined,
      },
    },
    ...changed,
  });
  const { outcome } = await turn.run(turn.start(), async (_, terminate) => terminate());
  const events = lines.filter((line) => !isRecord(line)).map((line) => JSON.parse(line) as StreamEvent);
  const last = events.at(-1);
  const output = last && "response" in last ? last.response.output : [];
  return { events, lines, output: output as OutputItem[], status: outcome.status };
}

const STOP: ModelDelta = { kind: "finish", reason: "stop" };

it("makes items and numbered events of a model's output", async () => {
  const engine = engineOf([
    [{ kind: "reasoning", text: "Hm." }, { kind: "text", text: "Sun" }, { kind: "text", text: "ny." }, STOP],
  ]);
  const { events, output, status } = await tell(engine, { stream_options: { include_obfuscation: false } });
  expect(status).toBe("completed");
  expect(output).toMatchObject([
    { type: "reasoning", status: "completed" },
    { type: "message", content: [{ type: "output_text", text: "Sunny." }] },
  ]);
  expect(events.map((event) => event.sequence_number)).toEqual(events.map((_, index) => index));
  const deltas = events.filter((event) => event.type === "response.output_text.delta");
  expect(deltas.map(({ delta, output_index }) => [delta, output_index])).toEqual([
    ["Sun", 1],
    ["ny.", 1],
  ]);
  expect(events.at(-1)?.type).toBe("response.completed");
});

it("leaves a client's call to the client", async () => {
  const call: ModelDelta = {
    kind: "tool_call",
    index: 0,
    callId: "call_1",
    name: "weather",
    arguments: '{"city":"Oslo"}',
  };
  const engine = engineOf([[call, { kind: "finish", reason: "tool_calls" }]]);
  const tools = [{ type: "function", name: "weather", parameters: { type: "object" } }];
  const { output } = await tell(engine, { tools });
  expect(output).toMatchObject([{ type: "function_call", call_id: "call_1", name: "weather", status: "completed" }]);
  expect(engine.prompts).toHaveLength(1);
});

/** A tool that the server runs: it is shown as a call of an MCP server's. */
const dice: Plugin = {
  kind: "dice",
  functions: [{ name: "roll", description: "Rolls a die.", parameters: { type: "object" } }],
  item: {
    type: "mcp_call",
    canShow: () => true,
    create: (_, { id, text }) =>
      ({ type: "mcp_call", id, server_label: "dice", name: "roll", arguments: text }) as never,
    finish(item, { output }) {
      Object.assign(item, { output });
      return "response.mcp_call.completed";
    },
  },
};

const session: ToolSession = {
  unlisted: [],
  approved: [],
  idle: new Map(),
  open: async () => {},
  container: () => "cntr_1",
  citations: undefined,
  citationsIn: () => [],
  pluginTools: { functions: [], namespaces: {}, builtinFunctions: [] },
  maxRounds: Number.POSITIVE_INFINITY,
  deadline: Number.POSITIVE_INFINITY,
  resolve: (name) => (name === "roll" ? { tool: { kind: "dice" }, isOffered: true } : undefined),
  callable: () => undefined,
  run: async () => ({ output: "A 20.", failed: false }),
  inject: () => {},
  close: async () => {},
};

it("runs a call of its own, and asks the model again with the answer in its prompt", async () => {
  const call: ModelDelta = { kind: "tool_call", index: 0, callId: "call_1", name: "roll", arguments: "{}" };
  const answer = (prompt: Prompt): ModelDelta[] => {
    const calls = prompt.items.filter(({ type }) => type === "mcp_call");
    return [{ kind: "text", text: calls.length === 1 ? "You have a 20." : "I know nothing." }, STOP];
  };
  const engine = engineOf([[call, { kind: "finish", reason: "tool_calls" }], answer]);
  const { output, events } = await tell(engine, {}, { tools: { plugins: new Plugins([dice]), session } });
  expect(output).toMatchObject([
    { type: "mcp_call", status: "completed", output: "A 20." },
    { type: "message", content: [{ text: "You have a 20." }] },
  ]);
  expect(events.map(({ type }) => type).filter((type) => type.includes("mcp_call"))).toEqual([
    "response.mcp_call.in_progress",
    "response.mcp_call.completed",
  ]);
});

it("continues at the end of its log", async () => {
  const whole = await tell(engineOf([[{ kind: "text", text: "Sunny, " }, { kind: "text", text: "and warm." }, STOP]]), {
    stream_options: { include_obfuscation: false },
  });
  const cut = whole.lines.findIndex((line) => line.includes('"delta":"and warm."'));
  const logged = readLoggedTurn(whole.lines.slice(0, cut));
  const { sequence } = logged;
  const { events, output } = await tell(engineOf([[{ kind: "text", text: "and cold." }, STOP]]), {}, { logged });
  expect(output).toMatchObject([{ type: "message", content: [{ text: "Sunny, and cold." }] }]);
  expect(events[0]?.sequence_number).toBe(sequence);
});

it("asks no model for a forced call that there is none to make, or no time for", async () => {
  const idle: ToolSession = { ...session, idle: new Map([["web_search", "Nothing is searched."]]) };
  const engine = { ...engineOf([[{ kind: "text", text: "Hm." }, STOP]]), mayCall: () => false };
  const body = { tools: [{ type: "web_search" }], tool_choice: "required" };
  const plugins = new Plugins([]);
  const { status, output, events } = await tell(engine, body, { tools: { plugins, session: idle } });
  expect({ status, output, asked: engine.prompts }).toEqual({ status: "failed", output: [], asked: [] });
  const fault = {
    code: "invalid_value",
    param: "tool_choice",
    message: expect.stringContaining("Nothing is searched."),
  };
  expect(events).toContainEqual(expect.objectContaining({ type: "error", ...fault }));
  const late = await tell(engine, body, { tools: { plugins, session: { ...idle, deadline: 0 } } });
  expect(late.events).toContainEqual(expect.objectContaining({ type: "error", code: "tool_timeout" }));
  expect(late.status).toBe("failed");
});

const LINE = "Wait, let me look at the second case again. ";

/** A thought that repeats a line until it is broken off, and then the answer, if the engine is asked for it. */
function looping() {
  const thought = Array.from({ length: 200 }, (): ModelDelta => ({ kind: "reasoning", text: LINE }));
  const asked: (boolean | undefined)[] = [];
  const engine: Engine & { prompts: Prompt[] } = {
    ...engineOf([]),
    resumption: (prompt, partial, _, options) => {
      asked.push(options?.endsThought);
      const thoughts = partial.filter(({ type }) => type === "reasoning");
      const anew = partial.length - thoughts.length;
      return { prompt: { ...prompt, items: [...prompt.items, ...thoughts] as [] }, repeated: "", anew };
    },
  };
  engine.generate = async (prompt) => {
    engine.prompts.push(prompt);
    const isAsked = prompt.items.some(({ type }) => type === "reasoning");
    const deltas: ModelDelta[] = isAsked ? [{ kind: "text", text: "Four." }, STOP] : thought;
    return (async function* () {
      for (const delta of deltas) yield [delta];
    })();
  };
  return { engine, asked };
}

it("breaks a thought off that repeats itself, wherever its process dies", async () => {
  const body = { stream_options: { include_obfuscation: false } };
  const whole = await tell(looping().engine, body);
  expect(whole.output).toMatchObject([{ type: "reasoning", status: "completed" }, { content: [{ text: "Four." }] }]);
  const cut = whole.lines.findIndex((line) => isRecord(line) && line.includes('"cut"'));
  expect(cut).toBeGreaterThan(30);
  const said = whole.lines.findIndex((line) => line.includes('"delta":"Four."'));
  for (let at = cut - 2; at <= said; at += 1) {
    const { engine, asked } = looping();
    const { output, status } = await tell(engine, body, { logged: readLoggedTurn(whole.lines.slice(0, at)) });
    expect(status).toBe("completed");
    expect(output.filter(({ type }) => type === "reasoning")).toHaveLength(1);
    expect(output.at(-1)).toMatchObject({ status: "completed", content: [{ text: "Four." }] });
    // A cut that is in the log is not made again.
    if (at <= cut) continue;
    expect(asked[0]).toBe(true);
    expect(engine.prompts[0]?.items.at(-1)).toMatchObject({ type: "reasoning", content: [{ text: LINE }] });
  }
});

it("leaves the repetitions out of the next round's prompt, and shows them", async () => {
  const call: ModelDelta = { kind: "tool_call", index: 0, callId: "call_1", name: "roll", arguments: "{}" };
  const { engine } = looping();
  const loop = engine.generate.bind(engine);
  engine.generate = async (prompt, signal) => {
    const begun = await loop(prompt, signal);
    if (engine.prompts.length !== 2) return begun;
    return (async function* () {
      yield [call, { kind: "finish" as const, reason: "tool_calls" as const }];
    })();
  };
  const { output } = await tell(engine, {}, { tools: { plugins: new Plugins([dice]), session } });
  expect(output.map(({ type }) => type)).toEqual(["reasoning", "mcp_call", "message"]);
  const shown = output[0]?.type === "reasoning" ? (output[0].content?.[0]?.text ?? "") : "";
  expect(shown.length).toBeGreaterThan(1_500);
  const [, , third] = engine.prompts;
  expect(third?.items.find(({ type }) => type === "reasoning")).toMatchObject({ content: [{ text: LINE }] });
});

it("continues after a crash from the samples that a cut has left", async () => {
  const { engine, asked } = looping();
  const samples: unknown[] = [];
  const generate = engine.generate.bind(engine);
  const withSamples: typeof engine = {
    ...engine,
    generate: async (prompt, signal) => {
      // The list grows with the samples that follow.
      samples.push(structuredClone(prompt.sampled));
      const begun = await generate(prompt, signal);
      return (async function* () {
        for await (const deltas of begun) {
          yield [...deltas, { kind: "sampled" as const, sampled: { ids: deltas.map(() => 7) } }];
        }
      })();
    },
    resumption: (prompt, partial, sampled, options) => ({
      ...(engine.resumption(prompt, partial, sampled, options) ?? { repeated: "" }),
      prompt: { ...prompt, items: [...prompt.items, ...partial] as [], ...(sampled && { sampled }) },
      anew: 0,
    }),
    cutSampled: async (_, sampled, { kind, kept }) => {
      expect(kind).toBe("thought");
      expect(kept(LINE.repeat(9))).toBe(LINE.length);
      return { ids: [...("ids" in sampled ? sampled.ids.slice(0, 1) : []), 8, 9] };
    },
  };
  const { lines, status } = await tell(withSamples, {});
  expect(status).toBe("completed");
  expect(samples).toEqual([undefined, { ids: [7, 8, 9] }]);
  const cut = lines.findIndex((line) => isRecord(line) && line.includes('"cut"'));
  expect(readLoggedTurn(lines.slice(0, cut + 1)).round).toMatchObject({ sampled: { ids: [7, 8, 9] } });
  samples.length = 0;
  asked.length = 0;
  await tell(withSamples, {}, { logged: readLoggedTurn(lines.slice(0, cut + 1)) });
  expect(samples[0]).toEqual({ ids: [7, 8, 9] });
  expect(asked).toEqual([true]);
});
