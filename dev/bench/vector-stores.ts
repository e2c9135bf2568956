/**
 * `npm run bench:stores -- [CHUNKS …]`: grows a vector store to the given numbers of chunks with 768 dimensions
 * (default 1000 10000 100000 500000), through the public API. Embeddings are made without a model. docs/benchmarks.md
 * has the method and the last results.
 */
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { randomFrom } from "../../test/random.ts";
import { serveEmbeddings } from "./embedding-server.ts";
import { machineLine, memoryMb, pinSelf, watchNoise } from "./processes.ts";
import { heapUsage } from "./profile.ts";
import { quantile } from "./statistics.ts";
import { bundle, type RunningWorker, startWorker } from "./workers.ts";

const DIMENSIONS = 768;
const CHUNKS_PER_FILE = 500;
/** Tokens of a chunk. Chunks do not overlap. */
const TOKENS = 200;
const SEARCHES = 200;
/** The pause between two searches during ingestion. Milliseconds. */
const PAUSE_MS = 250;

/** The number of files that are uploaded before they are added to the store. */
const FILES_AT_ONCE = 20;

const sizes = process.argv.slice(2).map(Number);
if (sizes.length === 0) sizes.push(1_000, 10_000, 100_000, 500_000);

const random = randomFrom(1);
/**
 * Words of an invented language. The frequency of the n-th word is proportional to 1/n, as in natural languages (Zipf).
 */
const WORDS = Array.from({ length: 30_000 }, (_, index) => wordOf(index));

function wordOf(index: number): string {
  let word = "";
  for (let left = index + 1; left > 0; left = Math.floor(left / 60)) {
    word += `${"bcdfgklmnprstvz"[left % 15]}${"aeio"[Math.floor((left % 60) / 15)]}`;
  }
  return `${word}n`;
}

const frequentWord = () => WORDS[Math.floor(WORDS.length ** random()) - 1] ?? "";
const sentence = (words: number) => `${Array.from({ length: words }, frequentWord).join(" ")}.`;

bundle();
pinSelf();
const noise = watchNoise();
const server = await serveEmbeddings(DIMENSIONS, { isCounting: false });
const worker = await startWorker("ours", 1, {
  inspect: true,
  variables: {
    EMBEDDINGS_BASE_URL: server.url,
    EMBEDDINGS_MODEL: "embedder",
    ALLOW_ANONYMOUS: "true",
    VECTOR_STORE_CHUNKS: "1000000",
  },
});
try {
  await grow(worker);
} finally {
  await worker.stop();
  await server.stop();
}

async function call<Answer>(path: string, body?: object | FormData): Promise<Answer> {
  const isForm = body instanceof FormData;
  const answer = await fetch(`http://127.0.0.1:${worker.port}/v1${path}`, {
    method: body ? "POST" : "GET",
    ...(body && { body: isForm ? body : JSON.stringify(body) }),
    ...(body && !isForm && { headers: { "content-type": "application/json" } }),
  });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return (await answer.json()) as Answer;
}

async function upload(index: number): Promise<string> {
  // A sentence of random words of this kind has about 2.2 tokens a word.
  const text = Array.from({ length: CHUNKS_PER_FILE * 9 }, () => sentence(10)).join(" ");
  const form = new FormData();
  form.set("purpose", "assistants");
  form.set("file", new File([text], `${index}.txt`));
  return (await call<{ id: string }>("/files", form)).id;
}

interface Store {
  id: string;
  usage_bytes: number;
  file_counts: { in_progress: number; completed: number; failed: number };
}

/** Measures the milliseconds of a search by meaning and words. */
async function search(store: string): Promise<number> {
  const begun = performance.now();
  await call(`/vector_stores/${store}/search`, { query: sentence(6) });
  return performance.now() - begun;
}

async function grow(target: RunningWorker): Promise<void> {
  console.log(`${machineLine()}\n`);
  console.log(
    "| chunks | ingested, chunks/s | search p50 / p95 beside ingestion, ms | idle p50 / p95, ms | first search after a restart, ms | isolate's heap + buffers, MB | RSS idle / highest, MB | store on disk, MB |",
  );
  console.log("|---:|---:|---:|---:|---:|---:|---:|---:|");
  const { id } = await call<Store>("/vector_stores", { name: "bench" });
  let files = 0;
  let chunks = 0;
  for (const size of sizes) {
    const beside: number[] = [];
    let ingestMs = 0;
    const before = chunks;
    let peak = 0;
    while (chunks < size) {
      const count = Math.min(FILES_AT_ONCE, Math.ceil((size - chunks) / CHUNKS_PER_FILE));
      const ids: string[] = [];
      for (let index = 0; index < count; index += 1) ids.push(await upload(files++));
      const begun = performance.now();
      const chunking_strategy = {
        type: "static",
        static: { max_chunk_size_tokens: TOKENS, chunk_overlap_tokens: 0 },
      };
      await call(`/vector_stores/${id}/file_batches`, { file_ids: ids, chunking_strategy });
      for (;;) {
        await pause(PAUSE_MS);
        const { file_counts: counts } = await call<Store>(`/vector_stores/${id}`);
        if (counts.failed > 0) throw new Error(`${counts.failed} files failed`);
        if (counts.in_progress === 0) break;
        // The first chunks do not have codes yet.
        if (chunks > 0 || counts.completed > 0) beside.push(await search(id));
        peak = Math.max(peak, memoryMb(target.pid).now);
      }
      ingestMs += performance.now() - begun;
      chunks += await chunksIn(id, ids);
    }
    const idle: number[] = [];
    for (let index = 0; index < SEARCHES; index += 1) idle.push(await search(id));
    const heap = await heapUsage(target.inspectorPort ?? 0);
    const { now } = memoryMb(target.pid);
    const disk = storeBytes(target.disk) / 1e6;
    await target.stop();
    target.restart();
    await ready();
    const first = await search(id);
    const of = (times: number[]) => `${quantile(times, 0.5).toFixed(1)} / ${quantile(times, 0.95).toFixed(1)}`;
    console.log(
      `| ${chunks} | ${Math.round(((chunks - before) / ingestMs) * 1000)} | ${of(beside)} (${beside.length}) | ${of(idle)} | ${first.toFixed(0)} | ${heap.used.toFixed(0)} + ${heap.buffers.toFixed(0)} | ${now.toFixed(0)} / ${Math.max(peak, now).toFixed(0)} | ${disk.toFixed(0)} |`,
    );
    for (let index = 0; index < 20; index += 1) await search(id);
    const anew = await heapUsage(target.inspectorPort ?? 0);
    console.error(
      `after the restart: heap ${anew.used.toFixed(0)} MB, buffers ${anew.buffers.toFixed(0)} MB, RSS ${memoryMb(target.pid).now.toFixed(0)} MB; others took ${(noise() * 100).toFixed(0)} % of the machine`,
    );
  }
}

async function ready(): Promise<void> {
  for (;;) {
    const answer = await fetch(`http://127.0.0.1:${worker.port}/health`).catch(() => undefined);
    if (answer?.ok) return;
    await pause(20);
  }
}

/** The chunks of files. */
async function chunksIn(store: string, ids: readonly string[]): Promise<number> {
  let chunks = 0;
  for (const id of ids) {
    chunks += (await call<{ data: unknown[] }>(`/vector_stores/${store}/files/${id}/content`)).data.length;
  }
  return chunks;
}

/** The size of the store's database in bytes. */
function storeBytes(disk: string): number {
  const folder = join(disk, "vectorstore");
  return readdirSync(folder)
    .filter((name) => /^[0-9a-f]{64}/.test(name))
    .reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
}
