/**
 * `npm run quality -- COLLECTION`: how well vector stores find what judges found relevant, through the public API alone. COLLECTION is a
 * folder with `docs.jsonl` (`id`, `text`) and `queries.jsonl` (`id`, `text`, `relevant`: ids). The gateway is one of its own, on plain
 * workerd; EMBEDDINGS_BASE_URL and EMBEDDINGS_MODEL name the model, RERANK_MODEL and RERANK_BASE_URL a reranker.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import OpenAI, { toFile } from "openai";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { startWorkerd } from "../../test/workerd/process.ts";
import { ndcg, recall } from "./scores.ts";

interface Document {
  id: string;
  text: string;
}

interface Query extends Document {
  relevant: string[];
}

/** As the tool's `hybrid_search`, which a search takes, too. */
const WAYS = {
  hybrid: { embedding_weight: 1, text_weight: 1 },
  keyword: { embedding_weight: 0, text_weight: 1 },
  vector: { embedding_weight: 1, text_weight: 0 },
};

/** Requests under way at a time, and files of one batch. */
const CONCURRENCY = 16;
const BATCH = 2_000;

const [folder] = process.argv.slice(2);
if (!folder) throw new Error("npm run quality -- COLLECTION");
const lines = <Line>(name: string) =>
  readFileSync(join(folder, name), "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Line);
const documents = lines<Document>("docs.jsonl").filter(({ text }) => text.trim() !== "");
const queries = lines<Query>("queries.jsonl");

const variables = ["EMBEDDINGS_BASE_URL", "EMBEDDINGS_MODEL", "EMBEDDINGS_API_KEY", "RERANK_MODEL", "RERANK_BASE_URL"];
const given = variables.flatMap((name) => (process.env[name] ? [[name, process.env[name]] as const] : []));
const simulator = await serveSimulator();
const gateway = await startWorkerd({
  VLLM_BASE_URL: `${simulator.url}/v1`,
  ALLOW_ANONYMOUS: "true",
  ...Object.fromEntries(given),
});
try {
  await measure(new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: "none" }));
} catch (error) {
  console.error(gateway.logs());
  throw error;
} finally {
  await gateway.close();
  await simulator.close();
}

async function measure(client: OpenAI): Promise<void> {
  const begin = Date.now();
  const ids = await each(documents, async ({ id, text }) => {
    const { id: fileId } = await client.files.create({
      file: await toFile(Buffer.from(text), `${id}.txt`),
      purpose: "assistants",
    });
    return fileId;
  });
  const uploaded = Date.now();
  const store = await client.vectorStores.create({ name: "quality" });
  for (let from = 0; from < ids.length; from += BATCH) {
    const batch = { file_ids: ids.slice(from, from + BATCH) };
    const { file_counts: counts } = await client.vectorStores.fileBatches.createAndPoll(store.id, batch, {
      pollIntervalMs: 500,
    });
    if (counts.completed !== counts.total) throw new Error(`not all files are searchable: ${JSON.stringify(counts)}`);
  }
  const indexed = Date.now();
  const seconds = (ms: number) => (ms / 1000).toFixed(1);
  console.log(
    `${ids.length} files: uploaded in ${seconds(uploaded - begin)} s, indexed in ${seconds(indexed - uploaded)} s`,
  );
  const nameOf = new Map(ids.map((id, index) => [id, documents[index]?.id ?? ""]));
  console.log("| | nDCG@10 | recall@20 | ms, median |\n|---|---:|---:|---:|");
  for (const [way, weights] of Object.entries(WAYS)) {
    const times: number[] = [];
    const scores = await each(queries, async ({ text, relevant }) => {
      const sentAt = performance.now();
      // Weights are the tool's at OpenAI, whose types of a search do not have them.
      const ranking_options: object = { hybrid_search: weights };
      const page = await client.vectorStores.search(store.id, { query: text, max_num_results: 50, ranking_options });
      times.push(performance.now() - sentAt);
      const found = [...new Set(page.data.map(({ file_id: id }) => nameOf.get(id) ?? ""))];
      return { ndcg: ndcg(found, relevant, 10), recall: recall(found, relevant, 20) };
    });
    const mean = (name: "ndcg" | "recall") => scores.reduce((sum, score) => sum + score[name], 0) / scores.length;
    const median = times.toSorted((one, other) => one - other)[times.length >> 1] ?? 0;
    console.log(`| ${way} | ${mean("ndcg").toFixed(3)} | ${mean("recall").toFixed(3)} | ${median.toFixed(1)} |`);
  }
}

/** Does something for each element, several at a time; gives what came of them, in their order. */
async function each<Element, Made>(
  elements: readonly Element[],
  work: (element: Element) => Promise<Made>,
): Promise<Made[]> {
  const made: Made[] = [];
  let next = 0;
  const worker = async () => {
    for (let index = next++; index < elements.length; index = next++)
      made[index] = await work(elements[index] as Element);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  return made;
}
