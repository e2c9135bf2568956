/**
 * `npm run quality:programs`: prints a table of what tasks with many calls cost with `programmatic_tool_calling` and without
 * it. The model is scripted: directly it makes at once all calls that do not need each other's results. The tokens are those
 * of o200k, of the tools and messages as the model server gets them.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import OpenAI from "openai";
import type { FunctionTool, ResponseInputItem } from "openai/resources/responses/responses";
import { startWorkerd } from "../../test/workerd/process.ts";
import { harmonyTokenizer } from "../simulator/harmony-tokenizer.ts";
import { type ProgramTask, TASKS } from "./program-tasks.ts";

interface Call {
  name: string;
  arguments: Record<string, number | string>;
}

/** An answer of the scripted model: calls, or the final text. */
type Said = { calls: Call[] } | { text: string };

type Make = new (...names: string[]) => (tools: object) => Promise<unknown>;
const AsyncFunction = (async () => {}).constructor as Make;
const PROGRAM_TOOL = "programmatic_tool_calling";
const tokenizer = await harmonyTokenizer();
const tokensOf = (text: string) => tokenizer.encode(text).length;

/** The calls of a task that are made together, in their order, and its result. */
async function batchesOf({ tools, code }: ProgramTask): Promise<{ batches: Call[][]; result: string }> {
  const batches: Call[][] = [];
  let open: { call: Call; resolve: (value: unknown) => void }[] = [];
  const named = Object.keys(tools).map((name) => {
    const call = (args: Call["arguments"]) =>
      new Promise((resolve) => open.push({ call: { name, arguments: args }, resolve }));
    return [name, call];
  });
  let result: string | undefined;
  void new AsyncFunction("tools", code)(Object.fromEntries(named)).then((value) => {
    result = typeof value === "string" ? value : JSON.stringify(value);
  });
  for (;;) {
    await new Promise((resolve) => setImmediate(resolve));
    if (result !== undefined) return { batches, result };
    const batch = open;
    open = [];
    batches.push(batch.map(({ call }) => call));
    for (const { call, resolve } of batch) resolve(tools[call.name]?.(call.arguments));
  }
}

/** The schema of a value, by its first elements. */
function schemaOf(value: unknown): Record<string, unknown> {
  if (Array.isArray(value)) return { type: "array", items: schemaOf(value[0]) };
  if (typeof value !== "object" || value === null) return { type: value === null ? "null" : typeof value };
  const properties = Object.fromEntries(Object.entries(value).map(([name, each]) => [name, schemaOf(each)]));
  return { type: "object", properties, required: Object.keys(properties) };
}

/** The functions of a task, as its calls use them. */
function functionsOf(task: ProgramTask, calls: readonly Call[], byProgram: boolean): FunctionTool[] {
  return Object.entries(task.tools).map(([name, run]) => {
    const call = calls.find((each) => each.name === name);
    const parameters = schemaOf(call?.arguments ?? {});
    const output_schema = schemaOf(run(call?.arguments ?? {}));
    const programs = byProgram ? { allowed_callers: ["programmatic" as const], output_schema } : {};
    return {
      type: "function",
      name,
      description: `${name.replaceAll("_", " ")}.`,
      parameters,
      strict: false,
      ...programs,
    };
  });
}

/** The script of the present task, and the requests for it. */
let script: Said[] = [];
let rounds = 0;

const server = createServer(async (request, response) => {
  if (!request.url?.endsWith("/chat/completions")) {
    const isList = request.url === "/v1/models";
    response.writeHead(isList ? 200 : 404, { "content-type": "application/json" });
    response.end(
      isList ? '{"object":"list","data":[{"id":"scripted","object":"model","max_model_len":1000000}]}' : "{}",
    );
    return;
  }
  let text = "";
  for await (const chunk of request) text += chunk;
  const { messages, tools } = JSON.parse(text) as { messages: { role: string }[]; tools?: unknown[] };
  const said = script[messages.filter(({ role }) => role === "assistant").length] ?? { text: "?" };
  rounds += 1;
  const calls = "calls" in said ? said.calls : [];
  const tool_calls = calls.map(({ name, arguments: args }, index) => {
    return {
      index,
      id: `call_${rounds}_${index}`,
      type: "function",
      function: { name, arguments: JSON.stringify(args) },
    };
  });
  const delta = "text" in said ? { content: said.text } : { tool_calls };
  const prompt = tokensOf(JSON.stringify(tools ?? [])) + tokensOf(JSON.stringify(messages));
  const written = tokensOf("text" in said ? said.text : JSON.stringify(calls));
  const usage = { prompt_tokens: prompt, completion_tokens: written, total_tokens: prompt + written };
  const chunks = [
    { choices: [{ index: 0, delta: { role: "assistant", ...delta }, finish_reason: null }] },
    { choices: [{ index: 0, delta: {}, finish_reason: calls.length > 0 ? "tool_calls" : "stop" }] },
    { choices: [], usage },
  ];
  response.writeHead(200, { "content-type": "text/event-stream" });
  const head = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 0, model: "scripted" };
  for (const chunk of chunks) response.write(`data: ${JSON.stringify({ ...head, ...chunk })}\n\n`);
  response.end("data: [DONE]\n\n");
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const { port } = server.address() as AddressInfo;
const variables = { VLLM_BASE_URL: `http://127.0.0.1:${port}/v1`, ALLOW_ANONYMOUS: "true", UPSTREAM_DIALECT: "openai" };
const worker = await startWorkerd(variables, { through: "serve" });
const openai = new OpenAI({ apiKey: "any", baseURL: `${worker.url}/v1` });

/** Runs a task to its end, as a client does. */
async function run(task: ProgramTask, tools: OpenAI.Responses.Tool[], said: Said[]) {
  script = said;
  rounds = 0;
  const used = { input: 0, output: 0 };
  let previous_response_id: string | undefined;
  let input: ResponseInputItem[] = [{ role: "user", content: task.question }];
  for (let requests = 1; ; requests += 1) {
    const response = await openai.responses.create({ model: "scripted", tools, input, previous_response_id });
    used.input += response.usage?.input_tokens ?? 0;
    used.output += response.usage?.output_tokens ?? 0;
    input = response.output.flatMap((item): ResponseInputItem[] => {
      if (item.type !== "function_call") return [];
      const value = task.tools[item.name]?.(JSON.parse(item.arguments) as Call["arguments"]);
      return [{ type: "function_call_output", call_id: item.call_id, output: JSON.stringify(value) }];
    });
    previous_response_id = response.id;
    const program = response.output.find((item) => item.type === "program_output");
    if (input.length === 0) return { ...used, rounds, requests, text: response.output_text, program };
  }
}

const rows: (string | number)[][] = [];
const sums = [0, 0, 0, 0, 0];
try {
  for (const task of TASKS) {
    const { batches, result } = await batchesOf(task);
    const calls = batches.flat();
    const answer = { text: `The answer is ${result}.` };
    const direct = await run(task, functionsOf(task, calls, false), [
      ...batches.map((each) => ({ calls: each })),
      answer,
    ]);
    const written = { calls: [{ name: PROGRAM_TOOL, arguments: { code: task.code } }] };
    const tools = [{ type: PROGRAM_TOOL } as const, ...functionsOf(task, calls, true)];
    const programmed = await run(task, tools, [written, answer]);
    if (programmed.program?.type !== "program_output" || programmed.program.result !== result) {
      throw new Error(`${task.name}: the program gave ${JSON.stringify(programmed.program)} instead of ${result}.`);
    }
    const [one, other] = [direct.input + direct.output, programmed.input + programmed.output];
    const numbers = [calls.length, direct.rounds, programmed.rounds, one, other];
    for (const [index, number] of numbers.entries()) sums[index] = (sums[index] ?? 0) + number;
    rows.push([task.name, ...numbers, `${Math.round((100 * other) / one)} %`]);
  }
} finally {
  await worker.close();
  server.close();
}
const [, , , one = 1, other = 0] = sums;
rows.push(["all", ...sums, `${Math.round((100 * other) / one)} %`]);
const head = ["Task", "Calls", "Rounds", "with programs", "Tokens", "with programs", "share"];
for (const row of [head, head.map((_, index) => (index === 0 ? "---" : "--:")), ...rows]) {
  console.log(`| ${row.map((each) => (typeof each === "number" ? each.toLocaleString("en") : each)).join(" | ")} |`);
}
