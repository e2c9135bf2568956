/**
 * `npm run bench:pdf -- [PAGES [PAGES_OF_A_FILE]]`: puts PDFs with PAGES pages in all (10000), each with
 * PAGES_OF_A_FILE (250), into a tenant's vector store. Another tenant sends small requests at the same time, one after
 * the other. The result is their latency, compared with their latency on an idle server.
 */
import { createHash } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { textPdf } from "../../packages/file-text/test/corpus.ts";
import { serveEmbeddings } from "./embedding-server.ts";
import { machineLine, memoryMb, pinSelf, watchNoise } from "./processes.ts";
import { quantile } from "./statistics.ts";
import { bundle, startWorker } from "./workers.ts";

const pages = Number(process.argv[2] ?? 10_000);
const pagesOfFile = Math.min(pages, Number(process.argv[3] ?? 250));

/** Text of a page. All pages together have less text than the limit of a file. */
const LINES = 12;

/** The pause between two small requests. Milliseconds. */
const PAUSE_MS = 20;

bundle();
pinSelf();
const embeddings = await serveEmbeddings(768, { isCounting: false });
const KEYS = { heavy: "the-key-of-heavy", light: "the-key-of-light" };
const hashes = Object.entries(KEYS).map(([name, key]) => `${name}:${createHash("sha256").update(key).digest("hex")}`);
const worker = await startWorker("ours", 1, {
  variables: { EMBEDDINGS_BASE_URL: embeddings.url, EMBEDDINGS_MODEL: "embedder", API_KEYS: hashes.join(",") },
});

async function call<Answer>(key: string, path: string, body?: object): Promise<Answer> {
  const isForm = body instanceof FormData;
  const answer = await fetch(`http://127.0.0.1:${worker.port}/v1${path}`, {
    method: body ? "POST" : "GET",
    headers: { authorization: `Bearer ${key}`, ...(body && !isForm && { "content-type": "application/json" }) },
    ...(body && { body: isForm ? body : JSON.stringify(body) }),
  });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return (await answer.json()) as Answer;
}

/** Sends small requests of the other tenant until `isOver`. Gives the duration of each in milliseconds. */
async function smallRequests(isOver: () => boolean): Promise<number[]> {
  const times: number[] = [];
  while (!isOver()) {
    const begun = performance.now();
    await call(KEYS.light, "/vector_stores?limit=1");
    times.push(performance.now() - begun);
    await pause(PAUSE_MS);
  }
  return times;
}

const line = (name: string, times: number[]) => {
  const at = (share: number) => quantile(times, share).toFixed(1);
  const over = times.filter((time) => time > 100).length;
  console.log(
    `| ${name} | ${times.length} | ${at(0.5)} | ${at(0.95)} | ${at(0.99)} | ${Math.max(...times).toFixed(0)} | ${over} |`,
  );
};

try {
  console.log(`${machineLine()}\n`);
  console.log(
    "| small requests | | p50, ms | p95 | p99 | longest | above 100 ms |\n|---|---:|---:|---:|---:|---:|---:|",
  );
  const text = (page: number) =>
    Array.from(
      { length: LINES },
      (_, index) => `Page ${page}, line ${index}: the wing of ${(page * 7919 + index) % 9973} stalls.`,
    ).join("\n");
  const pdfs = Array.from({ length: Math.ceil(pages / pagesOfFile) }, (_, file) =>
    textPdf(Array.from({ length: pagesOfFile }, (_, index) => text(file * pagesOfFile + index))),
  );
  await smallRequests(
    (
      (left) => () =>
        left-- <= 0
    )(20),
  );
  const alone = watchNoise();
  line(
    "alone",
    await smallRequests(
      (
        (end) => () =>
          performance.now() > end
      )(performance.now() + 5_000),
    ),
  );
  const others = alone();
  const noise = watchNoise();
  const begun = performance.now();
  let isOver = false;
  const small = smallRequests(() => isOver);
  const files: string[] = [];
  for (const pdf of pdfs) {
    const form = new FormData();
    form.set("purpose", "assistants");
    form.set("file", new File([pdf as BlobPart], "long.pdf"));
    files.push((await call<{ id: string }>(KEYS.heavy, "/files", form)).id);
  }
  const { id: store } = await call<{ id: string }>(KEYS.heavy, "/vector_stores", { file_ids: files });
  for (;;) {
    await pause(500);
    const { file_counts: counts, usage_bytes: bytes } = await call<{
      file_counts: { in_progress: number; completed: number; failed: number };
      usage_bytes: number;
    }>(KEYS.heavy, `/vector_stores/${store}`);
    if (counts.in_progress > 0) continue;
    isOver = true;
    line(`beside ${pages} pages`, await small);
    const sent = pdfs.reduce((sum, { length }) => sum + length, 0);
    console.log(
      `\n${counts.completed} files completed, ${counts.failed} failed: ${(sent / 1e6).toFixed(1)} MB in ${((performance.now() - begun) / 1000).toFixed(1)} s, ${(bytes / 1e6).toFixed(1)} MB in the store; RSS at its highest ${memoryMb(worker.pid).peak.toFixed(0)} MB; others took ${(others * 100).toFixed(0)} % and ${(noise() * 100).toFixed(0)} % of the machine`,
    );
    break;
  }
} finally {
  await worker.stop();
  await embeddings.stop();
}
