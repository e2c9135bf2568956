import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { Connection, get, post, type Request } from "./load.ts";
import { exactCpuSeconds, memoryMb } from "./processes.ts";
import { type Served, startServe } from "./serve.ts";
import { number, table } from "./tables.ts";
import { responseIdIn, type Upstream } from "./targets.ts";

/**
 * `npm run bench -- --growth`, its last table: many conversations, long bodies, a long run, many connections. Each row
 * has its own `serve`.
 */

const SHORT_MODEL = "simulator?words=20";
const LONG_TOKENS = 100_000;
const LONG_MODEL = `simulator?words=${LONG_TOKENS}&tps=20000`;
export const HEAVY_MODELS: readonly string[] = [SHORT_MODEL, LONG_MODEL];

const CLIENTS = 32;
/** Homes are closed 10 s after their last call. */
const CLOSED_MS = 13_000;
const REST_MS = 60_000;

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

interface Work {
  name: string;
  /** Gives the results as text. */
  measure(served: Served): Promise<string>;
}

/** Creates `count` conversations with a turn each. */
async function converse({ port }: Served, count: number): Promise<void> {
  let left = count;
  await Promise.all(
    Array.from({ length: CLIENTS }, async () => {
      const connection = await Connection.open(port);
      for (; left > 0; left -= 1) {
        const { text } = await connection.read(post("/v1/conversations", {}, "conv_"));
        const { id } = JSON.parse(text) as { id: string };
        await connection.send(post("/v1/responses", { model: SHORT_MODEL, input: "Hello", conversation: id }, "resp_"));
      }
      connection.close();
    }),
  );
}

/**
 * Requests `/health` again and again. The returned function ends that. It gives the longest wait, and the process's
 * highest memory in the meantime.
 */
function watch({ port, pid }: Served): () => Promise<{ longestMs: number; peakMb: number }> {
  let isOver = false;
  let longestMs = 0;
  let peakMb = 0;
  const asked = (async () => {
    const connection = await Connection.open(port);
    while (!isOver) {
      const { totalMs } = await connection.send(get("/health", "status"));
      longestMs = Math.max(longestMs, totalMs);
      peakMb = Math.max(peakMb, memoryMb(pid).now);
      await sleep(2);
    }
    connection.close();
  })();
  return async () => {
    isOver = true;
    await asked;
    return { longestMs, peakMb };
  };
}

/** Sends one request on each of `count` connections at the same time. */
async function askAtOnce({ port }: Served, request: Request, count: number): Promise<void> {
  await Promise.all(
    Array.from({ length: count }, async () => {
      const connection = await Connection.open(port);
      await connection.send(request);
      connection.close();
    }),
  );
}

function bytesIn(folder: string): number {
  const sizes = readdirSync(folder, { withFileTypes: true }).map((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? bytesIn(path) : entry.isFile() ? statSync(path).size : 0;
  });
  return sizes.reduce((sum, size) => sum + size, 0);
}

function bodies(store: boolean): Work {
  const body = { model: SHORT_MODEL, store, input: "word ".repeat(2_000_000) };
  return {
    name: `16 bodies of 10 MB at once, ${store ? "stored" : "`store: false`"}`,
    async measure(served) {
      const request = post("/v1/responses", body, "resp_");
      const before = memoryMb(served.pid).now;
      const end = watch(served);
      await askAtOnce(served, request, 16);
      const { longestMs, peakMb } = await end();
      return `${number(before, 0)} → ${number(peakMb, 0)} MB at most; others wait ${number(longestMs, 0)} ms at most`;
    },
  };
}

function longRun(stream: boolean): Work {
  return {
    name: `a background run of ${number(LONG_TOKENS, 0)} tokens, ${stream ? "read as it runs" : "unread"}`,
    async measure(served) {
      await sleep(CLOSED_MS);
      const before = bytesIn(served.state);
      const cpu = exactCpuSeconds(served.pid);
      const end = watch(served);
      const connection = await Connection.open(served.port);
      const request = post("/v1/responses", { model: LONG_MODEL, input: "Hello", background: true, stream }, "resp_");
      const id = responseIdIn((await connection.read(request)).text);
      const isRunning = async () =>
        (await connection.read(get(`/v1/responses/${id}`, "resp_"))).text.includes('"status":"in_progress"');
      while (await isRunning()) await sleep(500);
      const { longestMs } = await end();
      const perToken = ((exactCpuSeconds(served.pid) - cpu) * 1e6) / LONG_TOKENS;
      connection.close();
      await sleep(CLOSED_MS);
      const megabytes = (bytesIn(served.state) - before) / 1e6;
      return `others wait ${number(longestMs, 0)} ms at most; ${number(megabytes, 1)} MB on disk; CPU ${number(perToken, 1)} µs a token`;
    },
  };
}

const WORKS: readonly Work[] = [
  {
    name: "5,000 conversations, after 500",
    async measure(served) {
      await converse(served, 500);
      await sleep(CLOSED_MS);
      const { now: before } = memoryMb(served.pid);
      await converse(served, 5_000);
      const { now: after } = memoryMb(served.pid);
      await sleep(REST_MS);
      const { now: rested } = memoryMb(served.pid);
      const ratio = number(rested / before, 2);
      return `${number(before, 0)} → ${number(after, 0)} MB; ${number(rested, 0)} a minute later (× ${ratio})`;
    },
  },
  bodies(false),
  bodies(true),
  longRun(false),
  longRun(true),
  {
    name: "1,000 connections, idle",
    async measure({ port, pid }) {
      const files = () => readdirSync(`/proc/${pid}/fd`).length;
      const before = files();
      const connections: Connection[] = [];
      for (let count = 0; count < 1_000; count += 1) {
        const connection = await Connection.open(port);
        await connection.send(get("/health", "status"));
        connections.push(connection);
      }
      const each = (files() - before) / connections.length;
      const told = await connections[0]?.read(get("/health", "status"));
      const { open_files } = JSON.parse(told?.text ?? "{}") as { open_files: { limit: number } };
      for (const connection of connections) connection.close();
      return `${number(each, 1)} files a connection, of ${number(open_files.limit, 0)}`;
    },
  },
];

export async function measureHeavy(upstream: Upstream, progress: (text: string) => void): Promise<string> {
  const rows: string[][] = [];
  for (const { name, measure } of WORKS) {
    progress(name);
    const served = await startServe(upstream.port);
    await askAtOnce(served, post("/v1/responses", { model: SHORT_MODEL, input: "Hello" }, "resp_"), CLIENTS);
    rows.push([name, await measure(served)]);
    await served.stop();
  }
  return table(["", "measured"], rows);
}
