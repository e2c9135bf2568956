import { Connection, get, hammer, post, type Request } from "./load.ts";
import { cpuSeconds, memoryMb } from "./processes.ts";
import { quantile } from "./statistics.ts";
import { ask, responseIdIn, type Upstream } from "./targets.ts";
import type { LoggedRequest } from "./upstream.ts";
import { type RunningWorker, startWorker } from "./workers.ts";

/** The cost of durable runs and the time of their recovery: background, resume, recovery after a kill, lock. */

export interface DurableScale {
  /** Background runs at once. */
  fleet: number;
  resumes: number;
  kills: number;
  handOvers: number;
  /** The number of streams at 50 tokens/s whose CPU is measured, and their tokens. */
  streams: number;
  tokens: number;
}

const CREATORS = 32;
const EVENT = "event: response.";

/** Runs `work` for each of `count`, on a few connections. Returns the results in order. */
async function onConnections<T>(
  port: number,
  clients: number,
  count: number,
  work: (connection: Connection, index: number) => Promise<T>,
): Promise<T[]> {
  const results: T[] = [];
  let next = 0;
  await Promise.all(
    Array.from({ length: Math.min(clients, count) }, async () => {
      const connection = await Connection.open(port);
      try {
        for (let index = next++; index < count; index = next++) results[index] = await work(connection, index);
      } finally {
        connection.close();
      }
    }),
  );
  return results;
}

function create(model: string, extra: Record<string, unknown>): Request {
  return post("/v1/responses", { model: `simulator?${model}`, input: "Hello", ...extra }, EVENT);
}

async function createId(connection: Connection, request: Request): Promise<string> {
  return responseIdIn((await connection.read(request)).text);
}

const newConversation = post("/v1/conversations", {}, "never");

async function createConversation(connection: Connection): Promise<string> {
  return /conv_\w+/.exec((await connection.read(newConversation)).text)?.[0] ?? "";
}

function statusIn(text: string): string {
  return /"status":"(queued|in_progress|completed|failed|cancelled|incomplete)"/.exec(text)?.[1] ?? "none";
}

async function statusOf(port: number, id: string): Promise<string> {
  return statusIn(await ask(port, get(`/v1/responses/${id}`, "never")));
}

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function now(): number {
  return performance.timeOrigin + performance.now();
}

// Many runs at once

export interface Fleet {
  runs: number;
  tokens: number;
  completed: number;
  /** The maximum number of requests that the model server answered at the same time. */
  atOnce: number;
  /** Seconds until the last run was accepted. `seconds`: until all had completed. */
  acceptedSeconds: number;
  seconds: number;
  cpuMsPerConversation: number;
  cpuMsPerRun: number;
  idleMb: number;
  peakMb: number;
}

/** Measures many background runs at once, each in a conversation of its own, at 50 tokens/s. */
export async function measureFleet(upstream: Upstream, runs: number, tokens: number): Promise<Fleet> {
  const worker = await startWorker("ours", upstream.port);
  try {
    await ask(worker.port, create("words=20", { stream: true }));
    const idleMb = memoryMb(worker.pid).now;
    const begun = cpuSeconds(worker.pid);
    const conversations = await onConnections(worker.port, CREATORS, runs, createConversation);
    const conversationsMade = cpuSeconds(worker.pid);
    await upstream.log("reset");
    const start = performance.now();
    const ids = await onConnections(worker.port, CREATORS, runs, (connection, index) =>
      createId(connection, create(`words=${tokens}&tps=50`, { conversation: conversations[index], background: true })),
    );
    const acceptedSeconds = (performance.now() - start) / 1000;
    const mostOpen = await untilAllEnded(upstream, runs);
    const ended = cpuSeconds(worker.pid);
    const statuses = await onConnections(worker.port, CREATORS, runs, async (connection, index) => {
      for (let attempt = 0; ; attempt += 1) {
        const { text } = await connection.read(get(`/v1/responses/${ids[index]}`, "never"));
        const status = statusIn(text);

        if (status === "completed" || attempt === 600) return status;
        await wait(50);
      }
    });
    return {
      runs,
      tokens,
      completed: statuses.filter((status) => status === "completed").length,
      atOnce: mostOpen,
      acceptedSeconds,
      seconds: (performance.now() - start) / 1000,
      cpuMsPerConversation: ((conversationsMade - begun) * 1000) / runs,
      cpuMsPerRun: ((ended - conversationsMade) * 1000) / runs,
      idleMb,
      peakMb: memoryMb(worker.pid).peak,
    };
  } finally {
    await worker.stop();
  }
}

/** Waits until the model server has answered `count` requests. Gives the maximum that it answered at the same time. */
async function untilAllEnded(upstream: Upstream, count: number): Promise<number> {
  for (const deadline = performance.now() + 120_000; performance.now() < deadline; await wait(100)) {
    const { requests, mostOpen } = await upstream.log();
    if (requests.filter((request) => request.endedAt !== null).length >= count) return mostOpen;
  }
  throw new Error(`the model server was not asked ${count} times, or did not get to the end`);
}

// Resume

export interface Resume {
  events: number;
  /** -1: from the beginning. */
  after: number;
  p50: number;
  p99: number;
  wholeP50: number;
  kilobytes: number;
}

/** Measures the time to the first replayed event of a settled run, and to the end of the stream. */
export async function measureResume(upstream: Upstream, { resumes }: DurableScale): Promise<Resume[]> {
  const worker = await startWorker("ours", upstream.port);
  const results: Resume[] = [];
  try {
    for (const events of [10, 1_000, 10_000]) {
      // A text of one delta has ten events.
      const id = await runToEnd(worker.port, create(`words=${events - 9}&chunk=16`, { background: true }));
      for (const after of [-1, events - 6]) {
        const query = after < 0 ? "stream=true" : `stream=true&starting_after=${after}`;
        const request = get(`/v1/responses/${id}?${query}`, EVENT);
        const times: number[] = [];
        const whole: number[] = [];
        let bytes = 0;
        const connection = await Connection.open(worker.port);
        const count = events > 1_000 && after < 0 ? resumes / 3 : resumes;
        for (let index = 0; index < count * 1.1; index += 1) {
          const sample = await connection.send(request);
          if (sample.needles !== events - after - 1) throw new Error(`${sample.needles} events after ${after}`);
          // The first ones warm up.
          if (index < count * 0.1) continue;
          times.push(sample.firstByteMs);
          whole.push(sample.totalMs);
          bytes = sample.bytes;
        }
        connection.close();
        const [p50, p99] = [quantile(times, 0.5), quantile(times, 0.99)];
        results.push({ events, after, p50, p99, wholeP50: quantile(whole, 0.5), kilobytes: bytes / 1000 });
      }
    }
  } finally {
    await worker.stop();
  }
  return results;
}

async function runToEnd(port: number, request: Request): Promise<string> {
  const id = responseIdIn(await ask(port, request));
  while ((await statusOf(port, id)) !== "completed") await wait(20);
  return id;
}

// Rows

interface Counts {
  rowsWritten: number;
  rowsRead: number;
  rows: Record<string, number>;
  alarms: number;
  rings: number;
  calls: string[];
  databaseBytes: number;
}

export interface RunCost {
  name: string;
  tokens: number;
  /** The number of responses that were created at once, in one home. The counts are of all of them. */
  together: number;
  /** The counts until the run's end. `afterwards`: of its watchdog's last alarm. */
  run: Counts;
  afterwards: Counts;
  /** The counts of its removal, by its client or at expiry. */
  removal: Counts;
  /** The growth of its object's database. */
  storedBytes: number;
}

interface CostCase {
  name: string;
  tokens: number;
  extra: Record<string, unknown>;
  /** Earlier turns of the same chain, uncounted. */
  turnsBefore?: number;
  inConversation?: boolean;
  /** This many responses are created at once, and share a home. */
  together?: number;
  /** Variables besides the benchmark's own. */
  variables?: Record<string, string>;
}

/** Intervals of the event log other than the default. */
const CADENCES = [
  { name: "background, read, kept every second", extra: { background: true, stream: true }, interval: "1000" },
  { name: "background, read, kept every two seconds", extra: { background: true, stream: true }, interval: "2000" },
  { name: "background, unread, kept every minute", extra: { background: true }, unread: "60000" },
].map(({ name, extra, interval = "400", unread = "4000" }) => ({
  name,
  extra,
  tokens: 500,
  variables: { EVENT_LOG_INTERVAL_MS: interval, EVENT_LOG_UNREAD_INTERVAL_MS: unread },
}));

/** Cases of a home that has as many trees as it accepts. The result is for one response. */
const FULL_HOMES = [
  { name: "background, read as it runs", extra: { background: true, stream: true } },
  { name: "background, unread", extra: { background: true } },
  { name: "stored, first turn", extra: { stream: true } },
].map(({ name, extra }) => ({ name: `${name}, one of 32`, extra, tokens: 500, together: 32 }));

const COST_CASES: readonly CostCase[] = [
  ...FULL_HOMES,
  ...[100, 500, 1_000].flatMap((tokens) => [
    { name: "background, read as it runs", tokens, extra: { background: true, stream: true } },
    { name: "background, unread", tokens, extra: { background: true } },
  ]),
  ...CADENCES,
  { name: "stored, first turn", tokens: 500, extra: { stream: true } },
  { name: "stored, turn 3", tokens: 500, extra: { stream: true }, turnsBefore: 2 },
  { name: "stored, in a conversation", tokens: 500, extra: { stream: true }, inConversation: true },
  { name: "store:false", tokens: 500, extra: { stream: true, store: false } },
];

/** The watchdog's interval, and a little more. */
const WATCHDOG_SECONDS = 31;

/**
 * Measures the rows, calls and alarms of responses at 50 tokens/s. The server itself counts them. All responses run at
 * the same time.
 */
export async function countRuns(upstream: Upstream): Promise<RunCost[]> {
  return Promise.all(COST_CASES.map((costCase) => countRun(upstream, costCase)));
}

async function countRun(upstream: Upstream, costCase: CostCase): Promise<RunCost> {
  const { name, tokens, extra, turnsBefore = 0, inConversation, together = 1, variables = {} } = costCase;
  const worker = await startWorker("counting", upstream.port, { variables });
  const counts = async () => (await (await fetch(`http://127.0.0.1:${worker.port}/bench/counts`)).json()) as Counts;
  try {
    let previous: string | undefined;
    for (let turn = 0; turn < turnsBefore; turn += 1) {
      previous = responseIdIn(
        await ask(worker.port, create("words=500", { ...extra, previous_response_id: previous })),
      );
    }
    const connection = await Connection.open(worker.port);
    const conversation = inConversation ? await createConversation(connection) : undefined;
    connection.close();
    const { databaseBytes } = await counts();
    const start = performance.now();
    const request = create(`words=${tokens}&tps=50`, { ...extra, previous_response_id: previous, conversation });
    const ids = await onConnections(worker.port, together, together, (connection) => createId(connection, request));
    // Without a reader, no request comes before the run must have ended.
    if (extra.stream !== true) await wait((tokens / 50) * 1000 + 1_500);
    const run = await counts();
    if (extra.background) await wait(WATCHDOG_SECONDS * 1000 - (performance.now() - start));
    const afterwards = await counts();
    for (const id of ids) {
      if (extra.store !== false && (await statusOf(worker.port, id)) !== "completed")
        throw new Error(`${name}: not completed`);
    }
    await counts();
    for (const id of ids) await fetch(`http://127.0.0.1:${worker.port}/v1/responses/${id}`, { method: "DELETE" });
    const removal = await counts();
    const storedBytes = afterwards.databaseBytes - databaseBytes;
    return { name, tokens, together, run, afterwards, removal, storedBytes };
  } finally {
    await worker.stop();
  }
}

// CPU

export interface PacedCpu {
  name: string;
  tokens: number;
  cpuMs: number;
}

/** Measures the CPU of whole responses at 50 tokens/s, of the Worker and the object together. */
export async function measurePacedCpu(upstream: Upstream, scale: DurableScale): Promise<PacedCpu[]> {
  const { streams, tokens } = scale;
  const model = `words=${tokens}&tps=50`;
  const results: PacedCpu[] = [];
  const cases: [name: string, extra: Record<string, unknown>, chained: boolean][] = [
    ["store:false", { stream: true, store: false }, false],
    ["stored, first turn", { stream: true }, false],
    ["stored, turn 2", { stream: true }, true],
    ["background, read as it runs", { background: true, stream: true }, false],
    ["background, unread", { background: true }, false],
  ];
  for (const [name, extra, chained] of cases) {
    const worker = await startWorker("ours", upstream.port);
    try {
      await hammer(worker.port, create("words=20", extra), { clients: 4, durationMs: 500 });
      const firsts = await onConnections(worker.port, 8, chained ? streams : 0, (connection) =>
        createId(connection, create(`words=${tokens}`, extra)),
      );
      await wait(500);
      await upstream.log("reset");
      const before = cpuSeconds(worker.pid);
      await onConnections(worker.port, streams, streams, async (connection, index) => {
        await wait(index * 7);
        await connection.send(create(model, { ...extra, previous_response_id: firsts[index] }));
      });
      await untilAllEnded(upstream, streams);
      await wait(100);
      results.push({ name, tokens, cpuMs: ((cpuSeconds(worker.pid) - before) * 1000) / streams });
    } finally {
      await worker.stop();
    }
  }
  return results;
}

// Recovery

export interface Recovery {
  /** Milliseconds from the process's start until it answers, with nothing to recover. */
  ready: number[];
  /** Milliseconds from the process's start until a returning reader has the first new event. */
  reader: number[];
  /** Milliseconds from the process's start until the model server is asked to continue. */
  asked: number[];
  /** Without any reader: milliseconds until the model server is asked again, and until the run has ended. */
  unasked: { started: number[]; ended: number[]; completed: number };
}

export async function measureRecovery(upstream: Upstream, scale: DurableScale): Promise<Omit<Recovery, "unasked">> {
  const worker = await startWorker("ours", upstream.port);
  const [ready, reader, asked]: number[][] = [[], [], []];
  try {
    for (let kill = 0; kill < scale.kills; kill += 1) {
      await worker.stop();
      const begun = performance.now();
      worker.restart();
      await knock(worker.port, "/health");
      ready?.push(performance.now() - begun);
    }
    for (let kill = 0; kill < scale.kills; kill += 1) {
      const body = create(`live=kill${kill}&words=80&tps=50`, { background: true, stream: true });
      const { id, last } = await readAWhile(worker.port, body, 700 + 37 * kill);
      await worker.stop();
      await upstream.log("reset");
      const begun = now();
      worker.restart();
      const response = await knock(worker.port, `/v1/responses/${id}?stream=true&starting_after=${last}`);
      let first: number | undefined;
      let text = "";
      const decoder = new TextDecoder();
      for await (const bytes of response.body ?? []) {
        first ??= now();
        text += decoder.decode(bytes, { stream: true });
      }
      if (!text.includes(`"sequence_number":${last + 1},`) || !text.includes("event: response.completed"))
        throw new Error(`the run did not go on after event ${last}: ${text.slice(0, 500)}`);
      const { requests } = await upstream.log();
      reader?.push((first ?? Number.NaN) - begun);
      asked?.push((requests[0]?.receivedAt ?? Number.NaN) - begun);
    }
  } finally {
    await worker.stop();
  }
  return { ready: ready ?? [], reader: reader ?? [], asked: asked ?? [] };
}

/** Asks until the process listens. */
async function knock(port: number, path: string): Promise<Response> {
  for (let attempt = 0; attempt < 2_000; attempt += 1) {
    try {
      return await fetch(`http://127.0.0.1:${port}${path}`);
    } catch {
      await wait(2);
    }
  }
  throw new Error("no answer");
}

/** Creates a stream and reads it for a while. Gives its id and the last sequence number that arrived. */
async function readAWhile(port: number, request: Request, ms: number): Promise<{ id: string; last: number }> {
  const connection = await Connection.open(port);
  let text = "";
  connection.onBytes = (slice) => {
    text += slice.toString();
  };
  const broken = connection.send(request).catch(() => {});
  await wait(ms);
  connection.close();
  await broken;
  const whole = text.slice(0, text.lastIndexOf("\n\n"));
  return { id: responseIdIn(text), last: Number([...whole.matchAll(/"sequence_number":(\d+)/g)].at(-1)?.[1] ?? -1) };
}

/** Measures runs without a reader after the kill. The alarm finds them. */
export async function measureUnaskedRecovery(upstream: Upstream, scale: DurableScale): Promise<Recovery["unasked"]> {
  const worker: RunningWorker = await startWorker("ours", upstream.port);
  try {
    const ids = await onConnections(worker.port, scale.kills, scale.kills, async (connection, index) => {
      await wait(index * 250);
      return createId(connection, create(`live=alarm${index}&words=400&tps=50`, { background: true }));
    });
    await wait(4_000 - scale.kills * 250);
    await worker.stop();
    const begun = now();
    worker.restart();
    const resumed = (requests: readonly LoggedRequest[]) =>
      requests.filter(({ tag, receivedAt }) => tag.startsWith("alarm") && receivedAt > begun);
    let found: LoggedRequest[] = [];
    for (const deadline = begun + 60_000; now() < deadline; await wait(250)) {
      found = resumed((await upstream.log()).requests);
      if (found.filter((request) => request.endedAt !== null).length === ids.length) break;
    }
    await wait(500);
    const statuses = await onConnections(worker.port, 4, ids.length, async (connection, index) =>
      statusIn((await connection.read(get(`/v1/responses/${ids[index]}`, "never"))).text),
    );
    return {
      started: found.map(({ receivedAt }) => receivedAt - begun),
      ended: found.map(({ endedAt }) => (endedAt ?? Number.NaN) - begun),
      completed: statuses.filter((status) => status === "completed").length,
    };
  } finally {
    await worker.stop();
  }
}

// The lock

export interface HandOver {
  name: string;
  turns: number;
  p50: number;
  p99: number;
}

/**
 * Measures turns that wait for one conversation: the time from the last byte of one turn's answer to the next turn's
 * request.
 */
export async function measureHandOver(upstream: Upstream, scale: DurableScale): Promise<HandOver[]> {
  const worker = await startWorker("ours", upstream.port, { variables: { CONVERSATION_LOCK_WAIT_MS: "120000" } });
  const turns = scale.handOvers + 1;
  try {
    const results: HandOver[] = [];
    for (const [name, extra] of [
      ["foreground, streamed", { stream: true }],
      ["background", { background: true }],
    ] as const) {
      const connection = await Connection.open(worker.port);
      const conversation = await createConversation(connection);
      connection.close();
      await upstream.log("reset");
      await onConnections(worker.port, turns, turns, (each) =>
        each.send(create("words=20&chunk=16", { ...extra, conversation })),
      );
      await untilAllEnded(upstream, turns);
      const { requests } = await upstream.log();
      const gaps = requests.slice(1).map(({ receivedAt }, index) => receivedAt - (requests[index]?.endedAt ?? 0));
      if (gaps.some((gap) => gap < 0)) throw new Error("two turns ran at the same time");
      results.push({ name, turns, p50: quantile(gaps, 0.5), p99: quantile(gaps, 0.99) });
    }
    return results;
  } finally {
    await worker.stop();
  }
}
