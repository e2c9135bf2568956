import { createRequest } from "@responses-edge/responses-api/create-bodies";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import type { StreamEvent } from "@responses-edge/responses-api/items/events";
import { type Item, inputItem, type OutputItem } from "@responses-edge/responses-api/items/registry";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { Engine, ModelDelta, Prompt, Replay } from "@responses-edge/turn/contract/engine";
import { newMeasurements } from "@responses-edge/turn/contract/measurements";
import { type Plugin, Plugins } from "@responses-edge/turn/contract/plugin";
import type { PendingCall, ToolSession } from "@responses-edge/turn/contract/tool-session";
import { isRecord, recordLine } from "@responses-edge/turn/records";
import { readLoggedTurn } from "@responses-edge/turn/resume";
import { programFingerprints } from "@responses-edge/turn/sealed-content/program-fingerprint";
import { compactionCodec } from "@responses-edge/turn/sealed-content/sealer";
import type { TurnState } from "@responses-edge/turn/state";
import { Turn } from "@responses-edge/turn/turn";
import fc from "fast-check";
import { expect, it } from "vitest";
import { stepHere } from "./program-rig.ts";

/** Programs in a turn whose model writes one, and then answers with the output that it was given. */

const FINISH: ModelDelta = { kind: "finish", reason: "tool_calls" };
const KEY = { kid: "k1", secret: new Uint8Array(32).fill(7) };

/** `double`, a hosted tool that only programs may call. */
const double: Plugin = {
  kind: "double",
  item: {
    type: "mcp_call",
    canShow: () => true,
    create: (_, { id }) =>
      ({
        ...{ type: "mcp_call", id, status: "in_progress", server_label: "math", name: "double", arguments: "" },
        ...{ output: null, error: null },
      }) as never,
    written: {
      field: "arguments",
      deltaEvent: "response.mcp_call_arguments.delta",
      doneEvent: "response.mcp_call_arguments.done",
    },
    toolOf: () => ({ kind: "double" }),
    finish(item, { output }) {
      Object.assign(item, { output });
      return "response.mcp_call.completed";
    },
  },
  exchanges: {
    mcp_call: (item) => ({
      name: "double",
      arguments: item.arguments,
      output: item.output ?? "",
      step: item.id ?? "",
    }),
  },
};

interface World {
  /** The arguments of the calls of the hosted tool, as they were run. */
  ran: string[];
  prompts: Prompt[];
}

interface Asked {
  code: string;
  body?: object;
  history?: Item[];
  replays?: Replay[];
  input?: object[];
  logged?: TurnState;
  world?: World;
  isStored?: boolean;
}

const TOOLS = [
  { type: "programmatic_tool_calling" },
  {
    type: "function",
    name: "ask",
    parameters: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
    output_schema: { type: "integer" },
    allowed_callers: ["programmatic"],
  },
];

async function tell({ code, body, history = [], replays = [], input, logged, world }: Asked) {
  const lines: string[] = [];
  const { ran, prompts } = world ?? { ran: [], prompts: [] };
  const engine = {
    noteRole: "developer",
    mayCall: () => true,
    unboundThinking: () => undefined,
    async generate(prompt: Prompt) {
      prompts.push(prompt);
      const last = prompt.items.findLast((item) => item.type === "program_output");
      const call = { kind: "tool_call", index: 0, callId: "call_p", name: "programmatic_tool_calling" } as const;
      const deltas: ModelDelta[] =
        last?.type === "program_output"
          ? [
              { kind: "text", text: last.result },
              { kind: "finish", reason: "stop" },
            ]
          : [{ ...call, arguments: JSON.stringify({ code }) }, FINISH];
      return (async function* () {
        yield deltas;
      })();
    },
    resumption: () => undefined,
  } as unknown as Engine;
  const session: ToolSession = {
    unlisted: [],
    approved: [],
    idle: new Map(),
    open: async () => {},
    container: () => "",
    citations: undefined,
    citationsIn: undefined,
    pluginTools: {
      functions: [],
      namespaces: {},
      builtinFunctions: [],
      forPrograms: [{ type: "function", name: "double", description: null, parameters: null, strict: null }],
    },
    maxRounds: Number.POSITIVE_INFINITY,
    deadline: Number.POSITIVE_INFINITY,
    resolve: () => undefined,
    callable: (name) => (name === "double" ? { kind: "double" } : undefined),
    async run(call: PendingCall) {
      ran.push(call.arguments);
      const { n } = JSON.parse(call.arguments) as { n: number };
      return n < 0 ? { output: "below zero", failed: true } : { output: String(2 * n), failed: false };
    },
    inject: () => {},
    close: async () => {},
  };
  const turn = new Turn({
    asked: {
      request: parse(createRequest, { input: "?", tools: TOOLS, ...body }),
      address: newTurnAddress(),
      model: { name: "m", upstream: "m" },
      cacheSalt: "",
      createdAt: 0,
    },
    past: {
      history,
      replays,
      input: (input ?? [{ role: "user", content: "?" }]).map((item) => parse(inputItem, item) as Item),
      removed: [],
    },
    model: { engine, isServerGone: async () => false, leaveServer: () => {} },
    bounds: {
      maxRetries: 1,
      maxFruitless: 1,
      outageMs: 0,
      outputLength: 1_000_000,
      repetitionGuard: "on",
      maxRounds: 32,
    },
    tools: { plugins: new Plugins([double]), session, programs: { step: stepHere } },
    secrets: {
      hidesReasoning: false,
      seal: undefined,
      compactions: compactionCodec([], ""),
      programs: programFingerprints([KEY], "t"),
    },
    host: {
      signal: new AbortController().signal,
      clock: () => 1_000,
      measured: newMeasurements(),
      sink: {
        event: (_, json) => void lines.push(json),
        record: (record) => void lines.push(recordLine(record)),
        flush: () => undefined,
      },
    },
    logged,
  });
  const { outcome } = await turn.run(turn.start(), async (_, terminate) => terminate());
  const events = lines.filter((line) => !isRecord(line)).map((line) => JSON.parse(line) as StreamEvent);
  const last = events.at(-1);
  const output = (last && "response" in last ? last.response.output : []) as OutputItem[];
  return { events, lines, output, prompts, ran, outcome, replays: turn.state.replays };
}

/** The output as a client gives it back. */
function given(items: readonly OutputItem[]): Item[] {
  return items.map((item) => parse(inputItem, JSON.parse(JSON.stringify(item))) as Item);
}

function outputOf(items: readonly OutputItem[]): string | undefined {
  const item = items.find(({ type }) => type === "program_output");
  return item?.type === "program_output" ? item.result : undefined;
}

it("runs a program's hosted calls, and tells the model only its output", async () => {
  const code = `const all = await Promise.all([1, 2].map((n) => tools.double({ n })));
    const last = await tools.double({ n: 5 }); console.log("so"); return [...all, last].join();`;
  const { output, prompts, ran, outcome } = await tell({ code });
  expect(outcome.status).toBe("completed");
  const call_id = expect.stringMatching(/^call_p_\d$/);
  const call = { type: "mcp_call", status: "completed", call_id, caller: { type: "program", caller_id: "call_p" } };
  expect(output).toMatchObject([
    { type: "program", code, call_id: "call_p", fingerprint: expect.stringMatching(/^pf1\./) },
    { ...call, call_id: "call_p_0", output: "2" },
    { ...call, call_id: "call_p_1", output: "4" },
    { ...call, call_id: "call_p_2", output: "10" },
    { type: "program_output", call_id: "call_p", status: "completed", result: "so\n2,4,10" },
    { type: "message", content: [{ text: "so\n2,4,10" }] },
  ]);
  expect(ran).toEqual(['{"n":1}', '{"n":2}', '{"n":5}']);
  expect(prompts[1]?.items.map(({ type }) => type)).toEqual(["message", "program", "program_output"]);
});

it("ends with a program's calls of client functions, and goes on when their outputs come", async () => {
  const code = `const a = await tools.double({ n: 1 });
    const [b, c] = await Promise.all([tools.ask({ n: 2 }), tools.ask({ n: 3 })]);
    return { a, sum: b + c, d: await tools.double({ n: c }) };`;
  const first = await tell({ code });
  expect(first.outcome.status).toBe("completed");
  const caller = { type: "program", caller_id: "call_p" };
  expect(first.output).toMatchObject([
    { type: "program" },
    { type: "mcp_call", caller },
    { type: "function_call", name: "ask", arguments: '{"n":2}', call_id: "call_p_1", status: "completed", caller },
    { type: "function_call", name: "ask", arguments: '{"n":3}', call_id: "call_p_2", status: "completed", caller },
  ]);
  const outputs = [
    { type: "function_call_output", call_id: "call_p_2", output: "30" },
    { type: "function_call_output", call_id: "call_p_1", output: "20" },
  ];
  const second = await tell({ code, history: given(first.output), replays: first.replays, input: outputs });
  expect(second.output).toMatchObject([
    { type: "mcp_call", call_id: "call_p_3", arguments: '{"n":30}' },
    { type: "program_output", result: '{"a":"2","sum":50,"d":"60"}' },
    { type: "message" },
  ]);
  expect(second.ran).toEqual(['{"n":30}']);
  expect(second.prompts[0]?.items.map(({ type }) => type)).toEqual(["program", "program_output"]);
  const more = [...outputs, { role: "user", content: "Hurry." }];
  const hurried = await tell({ code, history: given(first.output), replays: first.replays, input: more });
  expect(hurried.prompts[0]?.items.map(({ type }) => type)).toEqual(["program", "program_output", "message"]);
  const unanswered = { code, history: given(first.output), input: outputs.slice(1) };
  await expect(tell(unanswered)).rejects.toThrow("No tool output found for function call call_p_2.");
});

it("goes on with a program that the client gives back, if its fingerprint is this server's", async () => {
  const code = "return 1 + await tools.ask({ n: 2 });";
  const first = await tell({ code });
  const answer = { type: "function_call_output", call_id: "call_p_0", output: "4" };
  const second = await tell({ code, input: [...first.output, answer] });
  expect(outputOf(second.output)).toBe("5");
  const changed = first.output.map((item) => (item.type === "program" ? { ...item, code: `${code} ` } : item));
  const message = "The fingerprint of program call_p is not this server's for it.";
  await expect(tell({ code, input: [...changed, answer] })).rejects.toThrow(message);
});

it("tells the model what is wrong with a program", async () => {
  const faults = {
    "await tools.double({ n: -1 })": "Error: below zero",
    "throw new Error('no')": "Error: no",
    "await tools.ask({})": "tools.ask cannot be called: the arguments do not match the tool's schema",
    "await new Promise(() => {})": "The program waits for nothing.",
  };
  for (const [code, text] of Object.entries(faults)) {
    const { output, outcome } = await tell({ code });
    expect(outcome.status).toBe("completed");
    const item = output.find(({ type }) => type === "program_output");
    expect(item).toMatchObject({ status: "incomplete", result: expect.stringContaining(text) });
  }
  const caught = await tell({ code: "try { await tools.double({ n: -1 }) } catch (e) { return e.message }" });
  expect(outputOf(caught.output)).toBe("below zero");
  const limited = await tell({
    code: "for (let n = 0; ; n += 1) await tools.double({ n })",
    body: { max_tool_calls: 3 },
  });
  expect(limited.ran).toHaveLength(3);
  expect(outputOf(limited.output)).toContain("'max_tool_calls'");
});

it("runs no call twice, wherever its process dies", async () => {
  const code = `const [a, b] = await Promise.all([tools.double({ n: 1 }), tools.double({ n: 2 })]);
    const c = await tools.ask({ n: Number(a) + Number(b) }); return c;`;
  const body = { stream_options: { include_obfuscation: false } };
  const whole = await tell({ code, body });
  const begun = whole.lines.findIndex((line) => line.includes('"type":"program"'));
  for (let at = begun + 1; at < whole.lines.length; at += 1) {
    const before = whole.lines.slice(0, at);
    const dispatched = before.filter((line) => line.startsWith('[{"dispatched"')).length;
    const answered = before.filter((line) => line.startsWith('[{"answered"')).length;
    const { output, ran, outcome } = await tell({ code, body, logged: readLoggedTurn(before) });
    expect(outcome.status).toBe("completed");
    expect(ran).toHaveLength(2 - dispatched);
    if (dispatched > answered) expect(outputOf(output)).toContain("restarted");
    else expect(stable(output)).toEqual(stable(whole.output));
  }
});

/** The items without their ids. */
function stable(items: readonly OutputItem[]) {
  return items.map(({ id: _, ...item }) => item);
}

/** A program of calls one after another (`chain`) and at the same time (`all`), of the hosted tool or of the client's. */
type Node = { call: "double" | "ask"; n: number } | { all: Node[] } | { chain: Node[] };

const node = fc.letrec<{ node: Node }>((tie) => ({
  node: fc.oneof(
    { depthSize: "small", maxDepth: 3 },
    fc.record({ call: fc.constantFrom("double" as const, "ask" as const), n: fc.integer({ min: -2, max: 9 }) }),
    fc.record({ all: fc.array(tie("node"), { maxLength: 3 }) }),
    fc.record({ chain: fc.array(tie("node"), { maxLength: 3 }) }),
  ),
})).node;

function codeOf(each: Node): string {
  if ("call" in each) {
    return `tools.${each.call}({ n: ${each.n} }).then((v) => (log.push("${each.call}${each.n}"), Number(v)), () => -1)`;
  }
  const parts = ("all" in each ? each.all : each.chain).map(codeOf);
  if ("all" in each) return `Promise.all([${parts.join()}]).then((all) => all.reduce((a, b) => a + b, 1))`;
  return `(async () => { let sum = 2; ${parts.map((part) => `sum += await ${part};`).join("")} return sum; })()`;
}

async function directly(each: Node): Promise<number> {
  if ("call" in each) return each.call === "ask" ? 3 * each.n : each.n < 0 ? -1 : 2 * each.n;
  let sum = "all" in each ? 1 : 2;
  for (const part of "all" in each ? each.all : each.chain) sum += await directly(part);
  return sum;
}

it("gives what its calls give when they are made directly", async () => {
  await fc.assert(
    fc.asyncProperty(node, async (tree) => {
      const code = `const log = []; const value = await ${codeOf(tree)}; return { value, calls: log.length };`;
      const ran: string[] = [];
      let history: Item[] = [];
      let input: object[] | undefined;
      for (let turns = 0; turns < 40; turns += 1) {
        const { output, outcome, ...told } = await tell({ code, history, input });
        ran.push(...told.ran);
        expect(outcome.status).toBe("completed");
        const result = outputOf(output);
        if (result !== undefined) {
          const { value } = JSON.parse(result) as { value: number };
          expect(value).toBe(await directly(tree));
          break;
        }
        history = [...history, ...(input ?? []).map((item) => parse(inputItem, item) as Item), ...given(output)];
        input = output.flatMap((item) => {
          if (item.type !== "function_call") return [];
          const { n } = JSON.parse(item.arguments) as { n: number };
          return [{ type: "function_call_output", call_id: item.call_id, output: String(3 * n) }];
        });
        expect(input).not.toEqual([]);
      }
      expect(ran).toHaveLength(JSON.stringify(tree).split('"double"').length - 1);
    }),
    { numRuns: 60 },
  );
});
