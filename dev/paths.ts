/**
 * `npm run paths`: counts the functions of `src` and `packages` that one warm request runs, their files, the number of
 * calls into another file, and the stops of its body, in `serve` as it ships: its command with its defaults, with an
 * instrumented bundle. `-- --files` lists the files, `-- --functions` also lists the functions, `-- --stops` lists the
 * stops.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { SourceMap, type SourceMapPayload } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type OpenAI from "openai";
import { parseAst } from "vite";
import { bundleInto } from "../cli/serve/bundle.ts";
import { NO_FILE_FORMATS } from "../cli/serve/workerd.ts";
import { startMcpServer } from "../test/tools/mcp-server.ts";
import { startWorkerd } from "../test/workerd/process.ts";
import { serveSimulator } from "./simulator/serve.ts";

/** A function of the project, at its place in the source. */
interface OwnFunction {
  name: string;
  file: string;
  line: number;
}

/** A node of a syntax tree, as ESTree has them; offsets in UTF-16 code units. */
interface SyntaxNode {
  type: string;
  start: number;
  end: number;
  body?: SyntaxNode;
  id?: { name?: string } | null;
  key?: { name?: string };
}

const WARM_UPS = 3;

/**
 * Requests sometimes run other code beside their own: on a busy machine they read in smaller pieces, and the launcher
 * or an alarm comes in between. The result is the count with the fewest functions of this many.
 */
const SAMPLES = 7;

/** Work after the answer counts for its request if it runs within this time. */
const AFTER_MS = 500;

/** Calls that several creates together cause later, such as reports, are counted for this many and this long. */
const [LATER_CREATES, LATER_MS] = [20, 10_000];

/** The cost of a batch line is the difference of two batches, by the number of their lines. */
const BATCH_LINES = [4, 24] as const;

/** The time that a batch gets for writing its files after the model has answered its last line. */
const BATCH_ENDS_MS = 3_000;
const wanted = new Set(process.argv.slice(2));

/**
 * The body of a create is on its way to being accepted from the function that reads its bytes until the function that
 * runs its turn. Each run of calls in one file between them is a stop.
 */
const [FROM, UNTIL] = [/^readJson\d*$/, /^runForeground\d*$/];

const folder = mkdtempSync(join(tmpdir(), "responses-edge-paths-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
bundleInto(folder, undefined, ["--readable"]);
const functions = instrument(join(folder, NO_FILE_FORMATS));

const simulator = await serveSimulator();
const tools = await startMcpServer();
const variables = { VLLM_BASE_URL: `${simulator.url}/v1`, ALLOW_ANONYMOUS: "true", MCP_SERVERS: tools.url };
const worker = await startWorkerd(variables, { bundle: folder, through: "serve" });

const mcp = { type: "mcp", server_label: "test", server_url: tools.url, require_approval: "never" };
const STREAMED = "streamed, stored";
const REQUESTS = {
  "streamed, stored, one MCP call": { stream: true, input: "Use test__echo, please.", tools: [mcp] },
  [STREAMED]: { stream: true, input: "Hello" },
  "JSON, stored": { input: "Hello" },
  "JSON, not stored": { store: false, input: "Hello" },
};

console.log(`\`serve\` as it ships: its command and its defaults (${Object.keys(variables).join(", ")} are given).
The anonymous create is warm. Its work in objects and within ${AFTER_MS} ms after its answer counts, too.
`);
console.log("| One request | functions | files | calls | to another file | stops of its body |");
console.log("|---|---:|---:|---:|---:|---:|");
const lists: string[] = [];
const callsOf = new Map<string, number>();
for (const [name, body] of Object.entries(REQUESTS)) {
  const called = await fewest(() => ask(body), "tools" in body ? checkToolCall : undefined);
  const files = Map.groupBy(new Set(called), ({ file }) => file);
  const hops = runsByFile(called).length - 1;
  const stops = runsByFile(acceptanceOf(called));
  console.log(`| ${name} | ${new Set(called).size} | ${files.size} | ${called.length} | ${hops} | ${stops.length} |`);
  callsOf.set(name, called.length);
  lists.push(`\n${name}`);
  if (wanted.has("--stops")) {
    lists.push(...stops.map((run, at) => `${at + 1} ${run[0]?.file}: ${run.map((each) => each.name).join(", ")}`));
  }
  if (!wanted.has("--files") && !wanted.has("--functions")) continue;
  for (const [file, own] of [...files].toSorted(([one], [other]) => (one < other ? -1 : 1))) {
    lists.push(`${String(own.length).padStart(4)} ${file}`);
    if (wanted.has("--functions")) lists.push(...own.map((each) => `       ${each.line} ${each.name}`));
  }
}
const [few, many] = BATCH_LINES;
const line = ((await callsOfBatch(many)) - (await callsOfBatch(few))) / (many - few);
const times = (line / (callsOf.get(STREAMED) ?? 0)).toFixed(2);
console.log(`\nA line of a batch: ${Math.round(line)} calls, ${times} times those of a create (${STREAMED}).`);
console.log(`Later than ${AFTER_MS} ms after a create: ${Math.round(await laterCalls())} calls more.`);
if (wanted.size > 0) console.log(lists.join("\n"));
await worker.close();
await tools.close();
await simulator.close();

/** The functions called by a warm request: those of the sample with the fewest. */
async function fewest(request: () => Promise<string>, check = (_text: string, _toolCalls: number) => {}) {
  for (let times = 0; times < WARM_UPS; times += 1) await request();
  await calls();
  const samples: OwnFunction[][] = [];
  for (let times = 0; times < SAMPLES; times += 1) {
    const before = tools.calls.length;
    check(await request(), tools.calls.length - before);
    samples.push(await calls());
  }
  const [first = []] = samples.toSorted((one, other) => new Set(one).size - new Set(other).size);
  return first;
}

/** The simulator calls the tools that the input names, and says what they have returned. */
function checkToolCall(text: string, toolCalls: number): void {
  if (toolCalls === 1 && text.includes("The tool test__echo returned: ")) return;
  throw new Error(`${toolCalls} tool calls: ${text.slice(-2_000)}`);
}

/** The later calls of a create: those after several creates, without those of a server that is asked for nothing. */
async function laterCalls(): Promise<number> {
  await sleep(LATER_MS);
  await calls();
  await sleep(LATER_MS);
  const { length: idle } = await calls();
  for (let times = 0; times < LATER_CREATES; times += 1) await ask(REQUESTS[STREAMED]);
  await calls();
  await sleep(LATER_MS);
  const { length: busy } = await calls();
  return Math.max(0, busy - idle) / LATER_CREATES;
}

/** The calls of a batch of stored JSON answers, from its creation to after its last line. */
async function callsOfBatch(lines: number): Promise<number> {
  const line = { method: "POST", url: "/v1/responses", body: { model: "simulator", ...REQUESTS["JSON, stored"] } };
  const input = Array.from({ length: lines }, (_, at) => JSON.stringify({ custom_id: `line-${at}`, ...line }));
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new Blob([input.join("\n")]), "input.jsonl");
  const file = await json<{ id: string }>("files", { method: "POST", body: form });
  simulator.simulator.clear();
  await calls();
  const batch = { input_file_id: file.id, endpoint: "/v1/responses", completion_window: "24h" };
  const { id } = await json<{ id: string }>("batches", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(batch),
  });
  // Its status is asked for after the count, because the question itself makes calls.
  while (simulator.simulator.requests.length < lines) await sleep(AFTER_MS);
  await sleep(BATCH_ENDS_MS);
  const { length } = await calls();
  const { status, request_counts: counts } = await json<OpenAI.Batch>(`batches/${id}`);
  if (status !== "completed" || counts?.completed !== lines) throw new Error(`The batch is ${status}.`);
  return length;
}

/** Asks an endpoint for JSON. Throws for an error. */
async function json<T>(path: string, init?: RequestInit): Promise<T> {
  const response = await fetch(`${worker.url}/v1/${path}`, init);
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as T;
}

/** Asks, and reads the answer to its end. Throws where the response is not completed. */
async function ask(body: object): Promise<string> {
  const response = await fetch(`${worker.url}/v1/responses`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "simulator", ...body }),
  });
  const text = await response.text();
  if (!response.ok || !/"status": ?"completed"/.test(text)) throw new Error(`${response.status} ${text.slice(-2_000)}`);
  return text;
}

/**
 * The functions that have been called since the last time, in order. It waits a moment, because a request may still
 * have work after its answer.
 */
async function calls(): Promise<OwnFunction[]> {
  await sleep(AFTER_MS);
  const indices = (await (await fetch(`${worker.url}/paths`)).json()) as number[];
  return indices.flatMap((index) => functions[index] ?? []);
}

/** The calls between the two functions, without the second. Throws if they are not called in this order. */
function acceptanceOf(called: readonly OwnFunction[]): readonly OwnFunction[] {
  const from = called.findIndex(({ name }) => FROM.test(name));
  const until = called.findIndex(({ name }) => UNTIL.test(name));
  if (from === -1 || until < from) throw new Error(`${String(FROM)} is not called before ${String(UNTIL)}.`);
  return called.slice(from, until);
}

/** Calls in their order, those that follow each other in one file together. */
function runsByFile(called: readonly OwnFunction[]): OwnFunction[][] {
  const runs: OwnFunction[][] = [];
  for (const each of called) {
    if (each.file === runs.at(-1)?.[0]?.file) runs.at(-1)?.push(each);
    else runs.push([each]);
  }
  return runs;
}

/** Makes each function of ours in a bundle note its calls. `GET /paths` returns the notes and clears them. */
function instrument(path: string): OwnFunction[] {
  const script = readFileSync(path, "utf8");
  const map = new SourceMap(JSON.parse(readFileSync(`${path}.map`, "utf8")) as SourceMapPayload);
  const lineStarts = [0, ...[...script.matchAll(/\n/g)].map(({ index }) => index + 1)];
  const found: OwnFunction[] = [];
  const insertions: { at: number; text: string }[] = [];

  // The walk almost follows the order of the text.
  let line = 0;
  const visit = (node: SyntaxNode, parent: SyntaxNode | undefined) => {
    const { body } = node;
    const own = /^(Function(Declaration|Expression)|ArrowFunctionExpression)$/.test(node.type) && sourceOf(node.start);
    if (own && body) {
      const name = node.id?.name ?? parent?.id?.name ?? parent?.key?.name ?? "(anonymous)";
      const note = `__note(${found.length})`;
      found.push({ name, ...own });
      if (body.type === "BlockStatement") insertions.push({ at: body.start + 1, text: `${note};` });
      else insertions.push({ at: body.start, text: `(${note},(` }, { at: body.end, text: "))" });
    }
    for (const value of Object.values(node)) {
      for (const child of Array.isArray(value) ? value : [value]) if (child?.type) visit(child as SyntaxNode, node);
    }
  };

  /** The source position of a place in the bundle. Undefined for code of libraries. */
  const sourceOf = (offset: number) => {
    while ((lineStarts[line + 1] ?? script.length) <= offset) line += 1;
    while ((lineStarts[line] ?? 0) > offset) line -= 1;
    const entry = map.findEntry(line, offset - (lineStarts[line] ?? 0));
    if (!("originalSource" in entry)) return undefined;
    const file = /(?:^|\/)((?:src|packages)\/(?!.*node_modules).*)$/.exec(entry.originalSource)?.[1];
    // Libraries also have sources in folders named `src`.
    return file === undefined || !existsSync(file) ? undefined : { file, line: entry.originalLine + 1 };
  };

  visit(parseAst(script) as unknown as SyntaxNode, undefined);
  const pieces: string[] = [];
  let from = 0;
  // The end of an expression was recorded after its start. It sorts before the start of the next expression.
  for (const { at, text: added } of insertions.toReversed().toSorted((one, other) => one.at - other.at)) {
    pieces.push(script.slice(from, at), added);
    from = at;
  }
  pieces.push(script.slice(from));
  const app = /(\w+) as default\b/.exec(script)?.[1];
  const counter = `var __noted = []; function __note(index) { __noted.push(index); }\n`;
  const taking = `
const __fetch = ${app}.fetch;
${app}.fetch = (request, ...rest) => {
  if (new URL(request.url).pathname !== "/paths") return __fetch.call(${app}, request, ...rest);
  const answer = Response.json(__noted);
  __noted = [];
  return answer;
};`;
  writeFileSync(path, counter + pieces.join("") + taking);
  return found;
}
