import { performance } from "node:perf_hooks";
import type { ResponseStreamEvent } from "openai/resources/responses/responses";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { parseEventStream } from "../conformance/event-stream.ts";
import { mcp, startTools } from "../e2e/tool-support.ts";
import { newSeed, randomFrom } from "../random.ts";
import { startWorkerd } from "../workerd/process.ts";
import { create, type Reader } from "./reader.ts";

/**
 * `npm run replays -- RUNS`: makes runs of several kinds, kills the gateway, replays each of them, and forks some at random events.
 * Prints its seed, the differing bytes, the calls of models and tools that replays have made, and the time from a fork
 * to its first request. Ends with 1 if a byte differs, if a replay has called anything, or if a fork's beginning differs.
 */

const RUNS = Number(process.argv[2] ?? 10_000);
const FORKS = Math.min(200, RUNS);
const CLIENTS = 16;

const random = randomFrom(newSeed("replays"));
const vllm = await serveSimulator();
const tools = await startTools({ add: { properties: { a: { const: 1 }, b: { const: 2 } }, run: () => "3" } });
const gateway = await startWorkerd({
  ...{ VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", MCP_SERVERS: tools.url, PROMPT_CACHE_SAMPLE: "0" },
  MAX_BACKGROUND_RUNS_PER_TENANT: "1000",
});

const KINDS = [
  { model: "simulator", input: "Grüße 🦜 你好, once more." },
  { model: "simulator?per_delta=odd&words=60", input: "Go on." },
  { model: "simulator-reasoning", input: "Think about it." },
  { model: "simulator", input: "Call docs__add.", tools: [mcp(tools)] },
  { model: "simulator-gpt-oss", input: "Call docs__add.", tools: [mcp(tools)] },
  { model: "simulator-gpt-oss", input: "Hello!" },
];

/** A run, and the bytes that its first reader got; of one without an event log, those of its first replay. */
interface Run extends Reader {
  isBackground: boolean;
}

const withoutHeartbeats = (text: string) => text.replaceAll(/^: .*\n\n/gm, "");

function post(path: string, body: object): Promise<Response> {
  return fetch(`${gateway.url}/v1/responses${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

const replayOf = async (id: string) => withoutHeartbeats(await (await post(`/${id}/replay`, {})).text());

/** Does work for each value, a few at a time. */
async function each<T>(values: readonly T[], work: (value: T) => Promise<void>): Promise<void> {
  const left = [...values];
  const client = async () => {
    for (let value = left.pop(); value !== undefined; value = left.pop()) await work(value);
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
}

const runs: Run[] = [];
await each(
  Array.from({ length: RUNS }, (_, number) => number),
  async (number) => {
    const body = { ...KINDS[Math.floor(random() * KINDS.length)], metadata: { number: String(number) } };
    const run: Run = { id: "", text: "", isBackground: number % 2 === 0 };
    if (run.isBackground) await create(gateway.url, run, body);
    else {
      run.id = ((await (await post("", body)).json()) as { id: string }).id;
      run.text = await replayOf(run.id);
    }
    runs.push(run);
    // The simulator keeps each request.
    if (number % 500 === 0) vllm.simulator.clear();
  },
);
await gateway.kill();
await gateway.restart();

vllm.simulator.clear();
const toolCalls = tools.calls.length;
let bytes = 0;
let differing = 0;
const began = performance.now();
await each(runs, async (run) => {
  const text = await replayOf(run.id);
  bytes += text.length;
  if (text !== run.text || !text.endsWith("data: [DONE]\n\n")) differing += 1;
});
const seconds = ((performance.now() - began) / 1000).toFixed(1);
const asked = vllm.simulator.requests.filter(({ path }) => path.endsWith("/completions")).length;
const called = tools.calls.length - toolCalls;
console.log(`${runs.length} replays in ${seconds} s (${(bytes / 1e6).toFixed(1)} MB): ${differing} differ.`);
console.log(`Calls by them: ${asked} of models, ${called} of tools.`);

/** The events about items, whatever the response and its ids. */
function eventsIn(text: string): string[] {
  const events = parseEventStream(text).events.map(({ data }) => data as ResponseStreamEvent);
  return events
    .filter((event) => !("response" in event))
    .map((event) => JSON.stringify(event, (key, value) => (key === "sequence_number" ? undefined : value)))
    .map((event) => event.replaceAll(/([a-z]+_)[0-9A-Za-z]{32}/g, "$1"));
}

/** Milliseconds from sending a request to the model server's first request for it; undefined if there was none. */
async function timed(path: string, body: object): Promise<{ answer: Response; text: string; ms: number | undefined }> {
  vllm.simulator.clear();
  const sentAt = Date.now();
  const answer = await post(path, { ...body, stream: true });
  const text = withoutHeartbeats(await answer.text());
  const first = vllm.simulator.requests.find((request) => request.path.endsWith("/completions"));
  return { answer, text, ms: first && first.startedAt - sentAt };
}

let wrong = 0;
let refused = 0;
const waits = { fork: [] as number[], create: [] as number[] };
for (let number = 0; number < FORKS; number += 1) {
  const run = runs[Math.floor(random() * runs.length)];
  if (!run) break;
  const events = parseEventStream(run.text).events.map(({ data }) => data as ResponseStreamEvent);
  const at = 2 + Math.floor(random() * (events.length - 3));
  const kept = events.slice(0, at + 1).filter((event) => !("response" in event)).length;
  const { ms: ofCreate } = await timed("", { ...KINDS[0], background: true });
  if (ofCreate !== undefined) waits.create.push(ofCreate);
  const { answer, text, ms } = await timed(`/${run.id}/fork`, { at });
  if (!answer.ok) {
    // Nothing is left to generate.
    if (answer.status !== 400 || !text.includes("has the whole output")) wrong += 1;
    refused += 1;
    continue;
  }
  if (ms !== undefined) waits.fork.push(ms);
  const same = eventsIn(text).slice(0, kept).join("\n") === eventsIn(run.text).slice(0, kept).join("\n");
  if (!same || !text.includes('"type":"response.completed"')) wrong += 1;
}
console.log(`${FORKS} forks at random events: ${wrong} wrong, ${refused} with nothing left to generate.`);
for (const [kind, all] of Object.entries(waits)) {
  all.sort((a, b) => a - b);
  const quantile = (part: number) => all[Math.min(all.length - 1, Math.floor(part * all.length))];
  const [half, most] = [quantile(0.5), quantile(0.95)];
  console.log(`From a ${kind} to its first request: ${half} ms at the median, ${most} ms at 95 %.`);
}
await gateway.close();
await vllm.close();
await tools.close();
if (differing + asked + called + wrong > 0) process.exitCode = 1;
