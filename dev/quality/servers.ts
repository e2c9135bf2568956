import { readFileSync } from "node:fs";
import OpenAI, { toFile } from "openai";
import { z } from "zod";
import { cpuSeconds } from "../bench/processes.ts";

/**
 * Servers with OpenAI's files and vector stores: this one, and others that already run. A file lists them
 * (`peers.example.json`).
 */

export const WAYS = ["hybrid", "keyword", "vector"] as const;
export type Way = (typeof WAYS)[number];

const peer = z.strictObject({
  name: z.string(),
  /** The URL of its API, with `/v1`. */
  url: z.string(),
  /** Its process on this machine. The CPU of this process is measured. */
  pid: z.int().optional(),
  /** Fields of the vector store beside its name. */
  store: z.record(z.string(), z.unknown()).default({}),
  /** Fields of a search beside `query` and `max_num_results`. */
  ways: z.record(z.enum(WAYS), z.record(z.string(), z.unknown())),
});

export function readPeers(file: string): z.output<typeof peer>[] {
  return z.array(peer).parse(JSON.parse(readFileSync(file, "utf8")));
}

/** The number of simultaneous uploads. */
const CONCURRENCY = 8;

/** The number of requested results. A long document may have several chunks among them. */
const RESULTS = 50;

const POLL_MS = 100;

/** The ids of the found documents, best first, the time in milliseconds, and the CPU seconds of the server. */
export interface Answer {
  documents: string[];
  ms: number;
  cpu: number | undefined;
}

interface Cost {
  seconds: number;
  cpu: number | undefined;
}

export class Server {
  readonly name: string;
  readonly uploads: Cost = { seconds: 0, cpu: 0 };
  readonly ingestion: Cost = { seconds: 0, cpu: 0 };
  readonly #peer: z.input<typeof peer>;
  readonly #client: OpenAI;
  #store = "";

  constructor(of: z.input<typeof peer>) {
    this.name = of.name;
    this.#peer = of;
    this.#client = new OpenAI({ baseURL: of.url, apiKey: "none", maxRetries: 0 });
  }

  async begin(): Promise<void> {
    const { id } = await this.#client.vectorStores.create({ name: "quality", ...this.#peer.store });
    this.#store = id;
  }

  /** Uploads documents, and waits until they are searchable. Throws if one fails. */
  async index(documents: readonly { id: string; text: string }[]): Promise<void> {
    const ids = await this.#measured(this.uploads, () => this.#upload(documents));
    await this.#measured(this.ingestion, async () => {
      const batch = { file_ids: ids };
      const options = { pollIntervalMs: POLL_MS };
      const { file_counts: counts } = await this.#client.vectorStores.fileBatches.createAndPoll(
        this.#store,
        batch,
        options,
      );
      if (counts.completed !== ids.length) throw new Error(`${this.name}: ${JSON.stringify(counts)}`);
    });
  }

  async search(query: string, way: Way): Promise<Answer> {
    const cost: Cost = { seconds: 0, cpu: 0 };
    const { data } = await this.#measured(cost, async () =>
      this.#client.vectorStores.search(this.#store, { query, max_num_results: RESULTS, ...this.#peer.ways[way] }),
    );
    // By their names: OGX 1.5 gives another `file_id` than that of the file.
    const documents = [...new Set(data.map(({ filename }) => filename.replace(/\.txt$/, "")))];
    return { documents, ms: cost.seconds * 1000, cpu: cost.cpu };
  }

  async #upload(documents: readonly { id: string; text: string }[]): Promise<string[]> {
    const ids: string[] = [];
    let next = 0;
    const worker = async () => {
      for (let index = next++; index < documents.length; index = next++) {
        const { id, text } = documents[index] ?? { id: "", text: "" };
        const file = await toFile(Buffer.from(text), `${id}.txt`, { type: "text/plain" });
        ids[index] = (await this.#client.files.create({ file, purpose: "assistants" })).id;
      }
    };
    await Promise.all(Array.from({ length: CONCURRENCY }, worker));
    return ids;
  }

  async #measured<T>(cost: Cost, work: () => Promise<T>): Promise<T> {
    const { pid } = this.#peer;
    const cpu = pid === undefined ? undefined : cpuSeconds(pid);
    const begunAt = performance.now();
    const value = await work();
    cost.seconds += (performance.now() - begunAt) / 1000;
    cost.cpu = pid === undefined || cpu === undefined ? undefined : (cost.cpu ?? 0) + cpuSeconds(pid) - cpu;
    return value;
  }
}
