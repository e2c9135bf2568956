/**
 * `npm run quality -- COLLECTION`: measures retrieval quality, indexing speed and search time of vector stores, through
 * the public API alone. COLLECTION is a folder with `docs.jsonl` (`id`, `text`) and `queries.jsonl` (`id`, `text`,
 * `relevant`: ids). The gateway runs on plain workerd. EMBEDDINGS_BASE_URL and EMBEDDINGS_MODEL name the model,
 * RERANK_MODEL and RERANK_BASE_URL a reranker. `--peers FILE` measures other servers in turn (`servers.ts`).
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { startWorkerd } from "../../test/workerd/process.ts";
import { machineLine } from "../bench/processes.ts";
import { median, quantile } from "../bench/tables.ts";
import { ndcg, recall } from "./scores.ts";
import { type Answer, readPeers, Server, WAYS } from "./servers.ts";

interface Document {
  id: string;
  text: string;
}

interface Query extends Document {
  relevant: string[];
}

/**
 * The documents are indexed in this many parts. For each part the servers take turns, so that other work of the machine
 * affects all of them.
 */
const PARTS = 4;

const { values, positionals } = parseArgs({ options: { peers: { type: "string" } }, allowPositionals: true });
const [folder] = positionals;
if (!folder) throw new Error("npm run quality -- COLLECTION [--peers FILE]");
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
  const own = { name: "responses-edge", url: `${gateway.url}/v1`, pid: gateway.pid(), ways: hybridWeights() };
  await compare([own, ...(values.peers === undefined ? [] : readPeers(values.peers))].map((each) => new Server(each)));
} catch (error) {
  console.error(gateway.logs());
  throw error;
} finally {
  await gateway.close();
  await simulator.close();
}

/** OpenAI has weights only in the tool's types, not in those of a search. */
function hybridWeights() {
  const weights = (embedding_weight: number, text_weight: number) => ({
    ranking_options: { hybrid_search: { embedding_weight, text_weight } },
  });
  return { hybrid: weights(1, 1), keyword: weights(0, 1), vector: weights(1, 0) };
}

async function compare(servers: readonly Server[]): Promise<void> {
  for (const server of servers) await server.begin();
  const size = Math.ceil(documents.length / PARTS);
  for (let from = 0; from < documents.length; from += size) {
    for (const server of servers) await server.index(documents.slice(from, from + size));
  }
  console.log(`${machineLine()}\n`);
  console.log("| | files | uploaded, a second | indexed, a second | CPU for each, ms |\n|---|---:|---:|---:|---:|");
  for (const { name, uploads, ingestion } of servers) {
    const rate = ({ seconds }: { seconds: number }) => (documents.length / seconds).toFixed(1);
    const cpu = inMs(ingestion.cpu, documents.length);
    console.log(`| ${name} | ${documents.length} | ${rate(uploads)} | ${rate(ingestion)} | ${cpu} |`);
  }
  console.log("\n| | | nDCG@10 | recall@20 | p50, ms | p95, ms | CPU, ms |\n|---|---|---:|---:|---:|---:|---:|");
  for (const way of WAYS) {
    const answers = new Map(servers.map((server) => [server, [] as (Answer & { query: Query })[]]));
    for (const query of queries) {
      for (const server of servers) answers.get(server)?.push({ query, ...(await server.search(query.text, way)) });
    }
    for (const [{ name }, found] of answers) {
      const mean = (score: (answer: (typeof found)[number]) => number) =>
        (found.reduce((sum, answer) => sum + score(answer), 0) / found.length).toFixed(3);
      const quality = [
        mean(({ documents: ids, query }) => ndcg(ids, query.relevant, 10)),
        mean(({ documents: ids, query }) => recall(ids, query.relevant, 20)),
      ];
      const times = found.map(({ ms }) => ms);
      const cpu = found.every((answer) => answer.cpu !== undefined)
        ? found.reduce((sum, answer) => sum + (answer.cpu ?? 0), 0)
        : undefined;
      const speed = [median(times).toFixed(1), quantile(times, 0.95).toFixed(1), inMs(cpu, found.length)];
      console.log(`| ${name} | ${way} | ${[...quality, ...speed].join(" | ")} |`);
    }
  }
}

function inMs(seconds: number | undefined, count: number): string {
  return seconds === undefined ? "–" : ((seconds / count) * 1000).toFixed(1);
}
