import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { WebSocket } from "ws";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { cleanUp, newFolder, start } from "../e2e/serve-support.ts";
import { serveEmbeddings } from "../tools/embedding-server.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { beginLoad } from "./hand-over-load.ts";

/**
 * `npm run hand-over -- TIMES WORKERS RATE STREAMS`: reloads `serve` TIMES times, with RATE requests per second, STREAMS
 * streams that follow each other on their connections, WebSockets that connect again when they are closed, a batch, and
 * files that are added to a vector store. Prints the failures, the times, and what the launcher has in use. Exits with 1 if
 * something failed.
 */

const [times = 3, workers = 1, rate = 40, streams = 30] = process.argv.slice(2).map(Number);
const SOCKETS = 8;
const LINES = Number(process.env.LINES ?? 240);
const FILES = Number(process.env.FILES ?? 50);

const model = await serveSimulator();
const embeddings = await serveEmbeddings(64);
const served = await start({
  ...{ VLLM_BASE_URL: `${model.url}/v1`, ALLOW_ANONYMOUS: "true", STATE_DIRECTORY: newFolder() },
  ...{ WORKERS: String(workers), EMBEDDINGS_BASE_URL: embeddings.url, EMBEDDINGS_MODEL: "embedder" },
});
const { url, child, output } = served;
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", fetch: fetchAnew, maxRetries: 0 });
const failures: string[] = [];
const watched = (what: string, work: Promise<void>) =>
  work.catch((error: Error) => void failures.push(`${what}: ${error.message}`));

let isGoing = true;
let reconnections = 0;
function connect(): void {
  const socket = new WebSocket(`${url.replace("http", "ws")}/v1/responses`);
  socket.on("error", ({ message }) => failures.push(`WebSocket: ${message}`));
  socket.on("close", (code) => {
    if (!isGoing) return;
    if (code !== 1012) failures.push(`WebSocket: closed with ${code}`);
    reconnections += 1;
    connect();
  });
}

async function runBatch(): Promise<void> {
  const body = { model: "simulator?tps=40", input: "Say it slowly." };
  const line = (index: number) => JSON.stringify({ custom_id: `${index}`, method: "POST", url: "/v1/responses", body });
  const file = new File([Array.from({ length: LINES }, (_, index) => line(index)).join("\n")], "batch.jsonl");
  const { id: input } = await openai.files.create({ file, purpose: "batch" });
  const asked = { input_file_id: input, endpoint: "/v1/responses", completion_window: "24h" } as const;
  let batch = await openai.batches.create(asked);
  for (; !batch.completed_at && !batch.failed_at; await sleep(500)) batch = await openai.batches.retrieve(batch.id);
  if (batch.request_counts?.completed !== LINES) throw new Error(JSON.stringify(batch.request_counts));
}

async function addFiles(): Promise<void> {
  const { id: store } = await openai.vectorStores.create({ name: "hand-over" });
  for (let index = 0; index < FILES; index += 1) {
    const text = Array.from({ length: 300 }, (_, part) => `Paragraph ${part} of file ${index}.`).join("\n\n");
    const { id } = await openai.files.create({ file: new File([text], `${index}.txt`), purpose: "assistants" });
    const added = await openai.vectorStores.files.createAndPoll(store, { file_id: id });
    if (added.status !== "completed") failures.push(`file ${index}: ${added.status} ${added.last_error?.message}`);
    const said = await (await openai.files.content(id)).text();
    if (said !== text) failures.push(`file ${index}: its bytes are others`);
  }
}

/** The launcher's memory in megabytes, its open files, and its children. */
function launcher(): string {
  const { pid } = child;
  const memory = Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").length;
  return `launcher: ${Math.round(memory)} MB, ${readdirSync(`/proc/${pid}/fd`).length} files, ${children} children`;
}

const count = (text: string) => output().split(text).length - 1;

async function until(condition: () => boolean): Promise<void> {
  for (const deadline = Date.now() + 120_000; !condition(); await sleep(20)) {
    if (Date.now() > deadline) throw new Error(`It has not come in two minutes.\n${output()}`);
  }
}

for (let index = 0; index < SOCKETS; index += 1) connect();
const load = beginLoad({ url, streams, words: 60, wordsPerSecond: 20, rate, isEndless: true });
const others = [watched("batch", runBatch()), watched("vector store", addFiles())];
await until(() => load.openStreams() >= streams / 2);
const took: number[] = [];
for (let time = 1; time <= times; time += 1) {
  const began = performance.now();
  child.kill("SIGHUP");
  await until(() => count("Another process serves") === time * workers);
  took.push(performance.now() - began);
  await sleep(500);
  if (time % 10 === 0 || time === times) console.log(`${time} reloads; ${failures.length} failures; ${launcher()}`);
}
await Promise.all(others);
const outcome = await load.finish();
isGoing = false;
await until(() => count("The previous process") === times * workers);
failures.push(...outcome.failures);
const at = (all: readonly number[], part: number) => `${Math.round(all[Math.floor(all.length * part)] ?? 0)} ms`;
const figures = (all: readonly number[]) => `p50 ${at(all, 0.5)}, p99 ${at(all, 0.99)}, longest ${at(all, 0.999999)}`;
console.log(`requests: ${outcome.requests}, ${figures(outcome.latencies)}; streams: ${outcome.streams}`);
console.log(`${outcome.resent} requests were sent again, because their idle connection was closed`);
console.log(`reloads: ${figures(took.toSorted((a, b) => a - b))}; ${reconnections} WebSockets connected again`);
console.log(`${launcher()}; ${failures.length} failures`);
for (const failure of failures.slice(0, 20)) console.log(`  ${failure}`);
for (const line of output().split("\n")) if (/"level":"(warn|error)"/.test(line)) console.log(line);
child.kill("SIGTERM");
await served.exited;
await model.close();
await embeddings.stop();
cleanUp();
process.exit(failures.length > 0 ? 1 : 0);
