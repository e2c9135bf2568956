import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort, root } from "../../test/workerd/tools.ts";
import { Connection, hammer } from "./load.ts";
import { number, table } from "./tables.ts";
import { responsesRequest, type Upstream } from "./targets.ts";

/**
 * `npm run bench -- --ways`: the ways to run this gateway on one's own machine. Each is started by its command and
 * measured with all processes that it starts: time to the first answer, memory, requests per second.
 */

export const WAYS_MODEL = "simulator?words=20";

/** The rate is so low that no process is busy, and the streams are so long that all are open at the same time. */
export const OPEN_MODEL = "simulator?words=32&tps=2";

const OPEN_STREAMS = 200;
const CLIENTS = 32;
const WARM_UP_MS = 2_000;

/** A longer start counts as failed. */
const START_TIMEOUT_MS = 120_000;

/** The interval at which a new server is polled. */
const LOOK_MS = 20;

/** Memory is measured at rest, this long after the first answer. */
const REST_MS = 2_000;

interface Way {
  name: string;
  /** The part for npm. Environment variables or the command line set the rest. */
  args(port: number, upstream: string, state: string): string[];
}

const WAYS: readonly Way[] = [
  { name: "npm start", args: () => ["start"] },
  { name: "npm run serve", args: () => ["run", "serve"] },
  {
    name: "npm run dev",
    args: (port, upstream, state) => [
      ...["run", "dev", "--", "--port", String(port), "--persist-to", state, "--show-interactive-dev-session=false"],
      ...["--var", `VLLM_BASE_URL:${upstream}`, "--var", "ALLOW_ANONYMOUS:true", "--var", "MAX_OPEN_TURNS:4000"],
    ],
  },
];

/** The measurements of a way. */
export interface WayResult {
  name: string;
  firstAnswerMs: number;
  processes: number;
  idleMb: number;
  openMb: number;
  requestsPerSecond: number;
}

/** Measures each way once, one after another. */
export async function measureWays(
  upstream: Upstream,
  windowMs: number,
  progress: (text: string) => void,
): Promise<WayResult[]> {
  const results: WayResult[] = [];
  for (const way of WAYS) {
    progress(way.name);
    results.push(await measureWay(way, upstream, windowMs));
  }
  return results;
}

export function waysReport(machine: string, results: readonly WayResult[]): string {
  const head = ["", "first answer", "processes", "memory at rest", `with ${OPEN_STREAMS} open streams`, "JSON answers"];
  const rows = results.map((way) => [
    `\`${way.name}\``,
    `${number(way.firstAnswerMs / 1000, 1)} s`,
    String(way.processes),
    `${number(way.idleMb, 0)} MB`,
    `${number(way.openMb, 0)} MB`,
    `${number(way.requestsPerSecond, 0)} /s`,
  ]);
  return `${machine}\n\n${table(head, rows)}`;
}

async function measureWay(way: Way, upstream: Upstream, windowMs: number): Promise<WayResult> {
  const directory = mkdtempSync(join(tmpdir(), "responses-edge-way-"));
  const port = await freePort();
  const url = `http://127.0.0.1:${upstream.port}/v1`;
  const json = responsesRequest({ model: WAYS_MODEL, stream: false }, { store: false });
  const begun = performance.now();
  // In a group of its own. A directory in the environment identifies all processes that it starts.
  const child = spawn("npm", way.args(port, url, directory), {
    cwd: root,
    detached: true,
    stdio: "ignore",
    env: {
      ...process.env,
      ...{ PORT: String(port), VLLM_BASE_URL: url, ALLOW_ANONYMOUS: "true", STATE_DIRECTORY: directory },
      ...{ WRANGLER_SEND_METRICS: "false", CI: "true" },
    },
  });
  try {
    await firstAnswer(child, port, json);
    const firstAnswerMs = performance.now() - begun;
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
    const idle = processesOf(directory);
    const idleMb = memoryMb(idle);
    const openMb = await memoryWithStreams(port, directory);
    await hammer(port, json, { clients: CLIENTS, durationMs: WARM_UP_MS });
    const { samples, seconds } = await hammer(port, json, { clients: CLIENTS, durationMs: windowMs });
    const requestsPerSecond = samples.filter(({ status }) => status === 200).length / seconds;
    return { name: way.name, firstAnswerMs, processes: idle.length, idleMb, openMb, requestsPerSecond };
  } finally {
    for (const pid of processesOf(directory)) process.kill(pid, "SIGKILL");
    rmSync(directory, { recursive: true, force: true });
  }
}

async function firstAnswer(child: ChildProcess, port: number, request: ReturnType<typeof responsesRequest>) {
  const deadline = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    if (child.exitCode !== null) throw new Error(`it has ended with ${child.exitCode}`);
    if (performance.now() > deadline) throw new Error("it does not answer");
    try {
      const connection = await Connection.open(port);
      const { status } = await connection.send(request);
      connection.close();
      if (status === 200) return;
    } catch {
      // Not listening yet.
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

async function memoryWithStreams(port: number, directory: string): Promise<number> {
  const request = responsesRequest({ model: OPEN_MODEL, stream: true }, { store: false });
  const connections: Connection[] = [];
  let begun = 0;
  for (let index = 0; index < OPEN_STREAMS; index += 1) {
    const connection = await Connection.open(port);
    connections.push(connection);
    connection.onFirstByte = () => {
      begun += 1;
    };
    connection.send(request).catch(() => {});
  }
  while (begun < OPEN_STREAMS) await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  const memory = memoryMb(processesOf(directory));
  for (const connection of connections) connection.close();
  return memory;
}

function processesOf(directory: string): number[] {
  return readdirSync("/proc").flatMap((name) => {
    const file = `/proc/${name}/environ`;
    if (!/^\d+$/.test(name) || Number(name) === process.pid || !existsSync(file)) return [];
    try {
      const [environment, command] = [file, `/proc/${name}/cmdline`].map((each) => readFileSync(each, "latin1"));
      return environment?.includes(directory) || command?.includes(directory) ? [Number(name)] : [];
    } catch {
      // It ended meanwhile, or is another user's.
      return [];
    }
  });
}

/** The memory of several processes. Shared memory counts once (`Pss`). */
function memoryMb(pids: readonly number[]): number {
  const kilobytes = pids.map((pid) => {
    try {
      return Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "latin1"))?.[1] ?? 0);
    } catch {
      return 0;
    }
  });
  return kilobytes.reduce((sum, each) => sum + each, 0) / 1024;
}
