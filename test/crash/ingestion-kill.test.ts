import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { eventually } from "../e2e/support.ts";
import { newSeed, randomFrom } from "../random.ts";
import { type EmbeddingServer, serveEmbeddings } from "../tools/embedding-server.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { fetchAnew } from "../workerd/tools.ts";

/** Files become searchable even if processes die: no chunk is lost or duplicated. */

/** `KILLS=100 npx vitest run test/crash/ingestion-kill.test.ts` shows more of them. */
const KILLS = Number(process.env.KILLS ?? 3);

let simulator: SimulatorServer;
let embeddings: EmbeddingServer;
let worker: WorkerdProcess;
let openai: OpenAI;
beforeAll(async () => {
  simulator = await serveSimulator();
  embeddings = await serveEmbeddings(64);
  const variables = {
    ...{ VLLM_BASE_URL: `${simulator.url}/v1`, ALLOW_ANONYMOUS: "true" },
    ...{ EMBEDDINGS_BASE_URL: embeddings.url, EMBEDDINGS_MODEL: "embedder" },
  };
  worker = await startWorkerd(variables, { through: "serve" });
  openai = new OpenAI({ baseURL: `${worker.url}/v1`, apiKey: "none", fetch: fetchAnew, maxRetries: 0 });
});
afterAll(async () => {
  await worker.close();
  await embeddings.stop();
  await simulator.close();
});

const CHUNKING = {
  type: "static" as const,
  static: { max_chunk_size_tokens: 100, chunk_overlap_tokens: 0 },
};
const CHUNKS = 60;
const FILES = 6;

/** The text of a chunk: sentences that name their file and their place in it. */
const chunkText = (file: string, chunk: number) =>
  Array.from({ length: 12 }, (_, index) => `${file} ${chunk} tells story ${index}.`).join(" ");

const textOf = (file: string) => Array.from({ length: CHUNKS }, (_, chunk) => chunkText(file, chunk)).join("\n\n");

async function upload(names: readonly string[]): Promise<string[]> {
  const files = await Promise.all(
    names.map((name) => openai.files.create({ file: new File([textOf(name)], `${name}.txt`), purpose: "assistants" })),
  );
  return files.map(({ id }) => id);
}

/** Makes a store with files that are not yet indexed. */
async function fill(name: string, files = FILES): Promise<{ store: string; names: string[]; ids: string[] }> {
  const names = Array.from({ length: files }, (_, index) => `${name}${index}`);
  const ids = await upload(names);
  const { id: store } = await openai.vectorStores.create({ name });
  await openai.vectorStores.fileBatches.create(store, { file_ids: ids, chunking_strategy: CHUNKING });
  return { store, names, ids };
}

const retrieve = (store: string) => openai.vectorStores.retrieve(store);

async function completed(store: string): Promise<void> {
  await eventually(async () => (await retrieve(store)).file_counts.in_progress === 0);
}

/** The texts of a file's chunks. */
async function contentOf(store: string, id: string): Promise<string[]> {
  const page = await openai.vectorStores.files.content(id, { vector_store_id: store });
  return page.data.map(({ text }) => text ?? "");
}

const count = (id: string, what: string) => Number(worker.vectorStores.exec(id, `SELECT ${what} AS rows`)[0]?.rows);

/** The numbers of rows in the tables of a store's object. */
function rowsOf(store: string): Record<"chunks" | "indexed" | "vectors" | "codes" | "words" | "removed", number> {
  const { vectorStores } = worker;
  const object = vectorStores.ids().find((id) => {
    const has = vectorStores.exec(id, "SELECT 1 FROM sqlite_master WHERE name = 'store'").length > 0;
    return has && JSON.stringify(vectorStores.exec(id, "SELECT body FROM store")).includes(store);
  });
  if (object === undefined) throw new Error(`No object has ${store}.`);
  return {
    chunks: count(object, "(SELECT COUNT(*) FROM chunk)"),
    indexed: count(object, "(SELECT COUNT(*) FROM chunk WHERE is_indexed = 1)"),
    vectors: count(object, "(SELECT COUNT(*) FROM vector)"),
    codes: count(object, "(SELECT SUM(LENGTH(bytes)) / 16 FROM code)"),
    words: count(object, "(SELECT COUNT(*) FROM words_docsize)"),
    removed: count(object, "(SELECT COUNT(*) FROM removed)"),
  };
}

/**
 * Checks that a store's files are complete, with each chunk once: in its content, its rows, and the data that searches
 * read.
 */
async function expectWhole({ store, names, ids }: Awaited<ReturnType<typeof fill>>): Promise<void> {
  const { file_counts: counts, status } = await retrieve(store);
  expect(counts).toEqual({ in_progress: 0, completed: ids.length, failed: 0, cancelled: 0, total: ids.length });
  expect(status).toBe("completed");
  let chunks = 0;
  for (const [index, id] of ids.entries()) {
    const texts = await contentOf(store, id);
    expect(texts.join(" ").replace(/\s+/g, " ")).toBe(textOf(names[index] ?? "").replace(/\s+/g, " "));
    chunks += texts.length;
  }
  expect(rowsOf(store)).toEqual({ chunks, indexed: chunks, vectors: chunks, codes: chunks, words: chunks, removed: 0 });
  const name = names.at(-1) ?? "";
  const { data } = await openai.vectorStores.search(store, { query: `${name} ${CHUNKS - 1}`, max_num_results: 50 });
  expect(data.map(({ filename }) => filename)).toContain(`${name}.txt`);
  const places = data.map(({ content }) => content[0]?.text);
  expect(new Set(places).size).toBe(places.length);
}

it(`kill -9 in the middle of ingestion, ${KILLS} times, loses no chunk and duplicates none`, async () => {
  const random = randomFrom(newSeed("ingestion"));
  const stores: Awaited<ReturnType<typeof fill>>[] = [];
  let cut = 0;
  embeddings.answered.clear();
  for (let kill = 0; kill < KILLS; kill += 1) {
    stores.push(await fill(`k${kill}f`));
    await new Promise((resolve) => setTimeout(resolve, random() * 600));
    const open = await Promise.all(stores.map(({ store }) => retrieve(store)));
    if (open.some(({ file_counts: counts }) => counts.in_progress > 0)) cut += 1;
    await worker.kill();
    // The alarm of a store whose process died fires half a minute after its work began.
    worker.passTime(30_000);
    await worker.restart();
    if (kill % 3 === 2) await Promise.all(stores.map(({ store }) => completed(store)));
  }
  await Promise.all(stores.map(({ store }) => completed(store)));
  let chunks = 0;
  for (const store of stores) {
    await expectWhole(store);
    chunks += rowsOf(store.store).chunks;
  }
  const asked = [...embeddings.answered].filter(([text]) => /tells story/.test(text));
  const again = asked.reduce((sum, [, times]) => sum + times - 1, 0);
  console.log(JSON.stringify({ kills: KILLS, cut, chunks, embedded: asked.length, again }));
  expect(asked).toHaveLength(chunks);
  // A death loses the current answers: at most a batch of each working store.
  expect(again).toBeLessThanOrEqual(64 * 3 * KILLS);
  expect(cut).toBeGreaterThan(0);
}, 1_800_000);

it("a file that ends its process whenever it is worked on fails in the end, and no other does", async () => {
  let deaths = 0;
  let dying = Promise.resolve();
  const die = async () => {
    deaths += 1;
    await worker.kill();
    worker.passTime(30_000);
    await worker.restart();
  };
  embeddings.fault = async (answer, body) => {
    if (!body.includes("poison")) return false;
    // The next process may ask before it is seen to be ready.
    await dying;
    if (!answer.socket?.destroyed) dying = die();
    return true;
  };
  try {
    const names = ["before", "poison", "after"];
    const ids = await upload(names);
    const { id: store } = await openai.vectorStores.create({ name: "deaths" });
    await openai.vectorStores.fileBatches.create(store, { file_ids: ids, chunking_strategy: CHUNKING });
    await eventually(async () => {
      await dying;
      return (await retrieve(store).catch(() => undefined))?.file_counts.in_progress === 0;
    });
    const files = await Promise.all(
      ids.map((id) => openai.vectorStores.files.retrieve(id, { vector_store_id: store })),
    );
    expect(files.map(({ status }) => status)).toEqual(["completed", "failed", "completed"]);
    expect(files[1]?.last_error).toEqual({
      code: "server_error",
      message: "The file was given up: the server's process died 6 times while it worked on it.",
    });
    expect(deaths).toBe(6);
  } finally {
    embeddings.fault = undefined;
  }
});

describe("an embedding server", () => {
  it("that is down for a while delays the files, and nothing is lost", async () => {
    await embeddings.stop();
    const filled = await fill("away");
    await eventually(() => /ingestion_waits/.test(worker.logs()));
    expect((await retrieve(filled.store)).file_counts).toMatchObject({ in_progress: FILES, failed: 0 });
    await embeddings.start();
    await completed(filled.store);
    await expectWhole(filled);
  });

  it.each([
    ["500", (count: number) => (count <= 2 ? { status: 500 } : undefined)],
    ["503", (count: number) => (count % 2 === 1 && count < 8 ? { status: 503 } : undefined)],
    ["429", (count: number) => (count <= 2 ? { status: 429, retryAfter: 1 } : undefined)],
    ["cut", (count: number) => (count <= 2 ? { status: 0 } : undefined)],
    ["not JSON", (count: number) => (count <= 2 ? { status: 200 } : undefined)],
  ])("that answers %s at first is asked again, and no chunk is duplicated", async (name, faultAt) => {
    let requests = 0;
    embeddings.fault = (answer) => {
      requests += 1;
      const fault = faultAt(requests);
      if (!fault) return false;
      if (fault.status === 0) answer.destroy();
      else {
        answer.writeHead(fault.status, {
          "content-type": "application/json",
          ...("retryAfter" in fault && { "retry-after": String(fault.retryAfter) }),
        });
        answer.end(fault.status === 200 ? "<html>" : JSON.stringify({ error: { message: "Not now." } }));
      }
      return true;
    };
    try {
      const filled = await fill(`fault${name.replaceAll(/\W/g, "")}x`, 2);
      await completed(filled.store);
      expect(requests).toBeGreaterThan(2);
      embeddings.fault = undefined;
      await expectWhole(filled);
    } finally {
      embeddings.fault = undefined;
    }
  });
});

describe("while files are indexed", () => {
  /** Holds all requests for embeddings until the returned function is called. */
  function hold(): { held: () => number; release: () => void } {
    const waiting: { destroy(): void }[] = [];
    embeddings.fault = (answer) => {
      waiting.push(answer);
      return true;
    };
    return {
      held: () => waiting.length,
      release: () => {
        embeddings.fault = undefined;
        for (const answer of waiting) answer.destroy();
      },
    };
  }

  it("a batch can be cancelled: its chunks are deleted, and the store's other files stay", async () => {
    const filled = await fill("kept", 2);
    await completed(filled.store);
    const { held, release } = hold();
    const ids = await upload(["cancelled0", "cancelled1"]);
    const batch = await openai.vectorStores.fileBatches.create(filled.store, {
      file_ids: ids,
      chunking_strategy: CHUNKING,
    });
    await eventually(() => held() > 0);
    const cancelled = await openai.vectorStores.fileBatches.cancel(batch.id, { vector_store_id: filled.store });
    expect(cancelled).toMatchObject({ status: "cancelled", file_counts: { cancelled: 2, in_progress: 0, total: 2 } });
    release();
    await eventually(() => rowsOf(filled.store).removed === 0);
    for (const id of ids) await openai.vectorStores.files.delete(id, { vector_store_id: filled.store });
    await eventually(() => rowsOf(filled.store).removed === 0);
    await expectWhole(filled);
  });

  it("a file can be removed or deleted, and a store deleted, without traces", async () => {
    const filled = await fill("stays", 2);
    await completed(filled.store);
    const { held, release } = hold();
    const [taken = "", deleted = ""] = await upload(["taken0", "deleted0"]);
    await openai.vectorStores.fileBatches.create(filled.store, {
      file_ids: [taken, deleted],
      chunking_strategy: CHUNKING,
    });
    const gone = await fill("gone", 2);
    await eventually(() => held() > 1);
    await openai.vectorStores.files.delete(taken, { vector_store_id: filled.store });
    await openai.files.delete(deleted);
    await openai.vectorStores.delete(gone.store);
    release();
    await expect(retrieve(gone.store)).rejects.toMatchObject({ status: 404 });
    await eventually(async () => (await retrieve(filled.store)).file_counts.total === 2);
    await eventually(() => rowsOf(filled.store).removed === 0);
    await expectWhole(filled);
  });
});
