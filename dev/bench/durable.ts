import { setTimeout as wait } from "node:timers/promises";
import { Connection, get, hammer, post, type Request } from "./load.ts";
import { cpuSeconds, memoryMb, watchNoise } from "./processes.ts";
import { startServe } from "./serve.ts";
import { median, number, percent, quantile, table } from "./tables.ts";
import { ask, responseIdIn, type Upstream } from "./targets.ts";
import type { LoggedRequest } from "./upstream.ts";

/** `npm run bench -- --durable`: the cost of durable runs in `serve`, and the time of their recovery after `kill -9`. */

export interface DurableScale {
  /** Background runs at once. */
  runs: number;
  resumes: number;
  kills: number;
  handOvers: number;
  /** The number of streams at 50 tokens/s whose CPU is measured, and their tokens. */
  streams: number;
  tokens: number;
}

/** One tenant has all runs here, more than the defaults let one have. */
const MANY = {
  MAX_OPEN_TURNS: "100000",
  MAX_BACKGROUND_RUNS_PER_TENANT: "100000",
  MAX_OPEN_CONVERSATIONS_PER_TENANT: "100000",
  CONVERSATION_LOCK_WAIT_MS: "120000",
};

/** Measures each part in a `serve` of its own. Gives a table of each. */
export async function measureDurable(
  upstream: Upstream,
  scale: DurableScale,
  progress: (text: string) => void,
): Promise<string> {
  const noise: string[] = [];
  const tables: string[] = [];
  for (const [name, measure] of Object.entries({
    "hand-over": measureHandOver,
    resume: measureResume,
    recovery: measureRecovery,
    "many runs": measureMany,
    CPU: measurePacedCpu,
  })) {
    progress(name);
    const stopWatching = watchNoise();
    tables.push(await measure(upstream, scale));
    noise.push(`${name} ${percent(stopWatching())}`);
  }
  return [`Other work took this much of the machine: ${noise.join(", ")}.`, ...tables].join("\n\n");
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

async function createConversation(connection: Connection): Promise<string> {
  const { text } = await connection.read(post("/v1/conversations", {}, "never"));
  return /conv_\w+/.exec(text)?.[0] ?? "";
}

/** Asks for a response until it is completed. False if it is not within a minute. */
async function isCompleted(connection: Connection, id: string | undefined): Promise<boolean> {
  for (let attempt = 0; attempt < 1_200; attempt += 1) {
    const { text } = await connection.read(get(`/v1/responses/${id}`, "never"));
    if (/"status":"completed"/.test(text)) return true;
    await wait(50);
  }
  return false;
}

function now(): number {
  return performance.timeOrigin + performance.now();
}

/** Waits until the model server has answered `count` requests. Gives the maximum that it answered at the same time. */
async function untilAllEnded(upstream: Upstream, count: number): Promise<number> {
  for (const deadline = performance.now() + 120_000; performance.now() < deadline; await wait(100)) {
    const { requests, mostOpen } = await upstream.log();
    if (requests.filter((request) => request.endedAt !== null).length >= count) return mostOpen;
  }
  throw new Error(`the model server was not asked ${count} times, or did not get to the end`);
}

/** Measures many background runs at once, each in a conversation of its own, at 50 tokens/s. */
async function measureMany(upstream: Upstream, { runs, tokens }: DurableScale): Promise<string> {
  const { port, pid, stop } = await startServe(upstream.port, { variables: MANY });
  try {
    await ask(port, create("words=20", { stream: true }));
    const idleMb = memoryMb(pid).now;
    const begun = cpuSeconds(pid);
    const conversations = await onConnections(port, CREATORS, runs, createConversation);
    const conversationsMade = cpuSeconds(pid);
    await upstream.log("reset");
    const start = performance.now();
    const ids = await onConnections(port, CREATORS, runs, (connection, index) =>
      createId(connection, create(`words=${tokens}&tps=50`, { conversation: conversations[index], background: true })),
    );
    const acceptedSeconds = (performance.now() - start) / 1000;
    const mostOpen = await untilAllEnded(upstream, runs);
    const ended = cpuSeconds(pid);
    const completed = await onConnections(port, CREATORS, runs, (connection, index) =>
      isCompleted(connection, ids[index]),
    );
    const seconds = (performance.now() - start) / 1000;
    const peakMb = memoryMb(pid).peak;
    return table(
      [`${number(runs, 0)} background runs of ${tokens} tokens at 50 tokens/s, each in its own conversation`, ""],
      [
        ["completed", number(completed.filter(Boolean).length, 0)],
        ["most runs at the model server at one time", number(mostOpen, 0)],
        ["seconds until all were accepted", number(acceptedSeconds, 1)],
        ["seconds until all had completed", number(seconds, 1)],
        ["CPU ms to make a conversation", number(((conversationsMade - begun) * 1000) / runs, 1)],
        ["CPU ms for a run", number(((ended - conversationsMade) * 1000) / runs, 1)],
        ["memory, idle → peak MB", `${number(idleMb, 0)} → ${number(peakMb, 0)}`],
      ],
    );
  } finally {
    await stop();
  }
}

/** Measures the time to the first replayed event of a settled run, and to the end of the stream. */
async function measureResume(upstream: Upstream, { resumes }: DurableScale): Promise<string> {
  const { port, stop } = await startServe(upstream.port);
  const rows: string[][] = [];
  const connection = await Connection.open(port);
  try {
    for (const events of [10, 1_000, 10_000]) {
      // A text of one delta has ten events.
      const id = await createId(connection, create(`words=${events - 9}&chunk=16`, { background: true }));
      if (!(await isCompleted(connection, id))) throw new Error("the run is not completed");
      for (const after of [-1, events - 6]) {
        const query = after < 0 ? "stream=true" : `stream=true&starting_after=${after}`;
        const request = get(`/v1/responses/${id}?${query}`, EVENT);
        const [first, whole]: [number[], number[]] = [[], []];
        let kilobytes = 0;
        const count = events > 1_000 && after < 0 ? resumes / 3 : resumes;
        for (let index = 0; index < count * 1.1; index += 1) {
          const sample = await connection.send(request);
          if (sample.needles !== events - after - 1) throw new Error(`${sample.needles} events after ${after}`);
          // The first ones warm up.
          if (index < count * 0.1) continue;
          first.push(sample.firstByteMs);
          whole.push(sample.totalMs);
          kilobytes = sample.bytes / 1000;
        }
        const name = `${number(events, 0)} events, ${after < 0 ? "from the first" : `after event ${number(after, 0)}`}`;
        const times = [quantile(first, 0.5), quantile(first, 0.99), quantile(whole, 0.5)];
        rows.push([name, ...times.map((each) => number(each, 2)), number(kilobytes, 0)]);
      }
    }
  } finally {
    connection.close();
    await stop();
  }
  const head = ["first event p50 ms", "first event p99 ms", "whole answer p50 ms", "kB of answer"];
  return table(["A client resumes a run that has", ...head], rows);
}

/** Measures the CPU of whole responses at 50 tokens/s, of the Worker and the object together. */
async function measurePacedCpu(upstream: Upstream, { streams, tokens }: DurableScale): Promise<string> {
  const rows: string[][] = [];
  const cases: [name: string, extra: Record<string, unknown>, chained: boolean][] = [
    ["store:false", { stream: true, store: false }, false],
    ["stored, first turn", { stream: true }, false],
    ["stored, turn 2", { stream: true }, true],
    ["background, read as it runs", { background: true, stream: true }, false],
    ["background, unread", { background: true }, false],
  ];
  for (const [name, extra, isChained] of cases) {
    const { port, pid, stop } = await startServe(upstream.port);
    try {
      await hammer(port, create("words=20", extra), { clients: 4, durationMs: 500 });
      const firsts = await onConnections(port, 8, isChained ? streams : 0, (connection) =>
        createId(connection, create(`words=${tokens}`, extra)),
      );
      await wait(500);
      await upstream.log("reset");
      const before = cpuSeconds(pid);
      await onConnections(port, streams, streams, async (connection, index) => {
        await wait(index * 7);
        await connection.send(create(`words=${tokens}&tps=50`, { ...extra, previous_response_id: firsts[index] }));
      });
      await untilAllEnded(upstream, streams);
      await wait(100);
      const cpuMs = ((cpuSeconds(pid) - before) * 1000) / streams;
      rows.push([`${name}, ${tokens} tokens`, number(cpuMs, 1), number((cpuMs * 1000) / tokens, 0)]);
    } finally {
      await stop();
    }
  }
  return table(["CPU of one response at 50 tokens/s", "ms", "µs / token"], rows);
}

/** Milliseconds from the command's start until something happens, one for each kill. */
type Times = number[];

async function measureRecovery(upstream: Upstream, { kills }: DurableScale): Promise<string> {
  const [ready, reader, asked]: [Times, Times, Times] = [[], [], []];
  let served = await startServe(upstream.port);
  const { state } = served;
  for (let kill = 0; kill < kills; kill += 1) {
    const body = create(`live=kill${kill}&words=100&tps=50`, { background: true, stream: true });
    const { id, last } = await readAWhile(served.port, body, 700 + 37 * kill);
    await served.stop();
    await upstream.log("reset");
    const begun = now();
    served = await startServe(upstream.port, { state });
    ready.push(now() - begun);
    const path = `/v1/responses/${id}?stream=true&starting_after=${last}`;
    const response = await fetch(`http://127.0.0.1:${served.port}${path}`);
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
    reader.push((first ?? Number.NaN) - begun);
    asked.push((requests[0]?.receivedAt ?? Number.NaN) - begun);
  }
  await served.stop();
  const unread = await measureUnreadRecovery(upstream, kills);
  const row = (label: string, times: Times) => [
    label,
    String(times.length),
    number(median(times), 0),
    number(Math.max(...times), 0),
  ];
  return table(
    ["From the start of `serve` after kill -9 until", "n", "p50 ms", "max ms"],
    [
      row("it is healthy", ready),
      row("a run asks the model server to continue, after its reader has returned", asked),
      row("that reader gets its first new event", reader),
      row("a run that nobody reads asks the model server to continue", unread),
    ],
  );
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

/** Measures runs without a reader. An alarm finds them. Throws if one does not complete. */
async function measureUnreadRecovery(upstream: Upstream, kills: number): Promise<Times> {
  let served = await startServe(upstream.port);
  const { state } = served;
  const ids = await onConnections(served.port, kills, kills, async (connection, index) => {
    await wait(index * 250);
    return createId(connection, create(`live=alarm${index}&words=400&tps=50`, { background: true }));
  });
  await wait(4_000 - kills * 250);
  await served.stop();
  const begun = now();
  served = await startServe(upstream.port, { state });
  const isResumed = ({ tag, receivedAt }: LoggedRequest) => tag.startsWith("alarm") && receivedAt > begun;
  let found: LoggedRequest[] = [];
  for (const deadline = begun + 60_000; found.length < ids.length && now() < deadline; await wait(250)) {
    found = (await upstream.log()).requests.filter(isResumed);
  }
  const completed = await onConnections(served.port, 4, ids.length, (connection, index) =>
    isCompleted(connection, ids[index]),
  );
  await served.stop();
  if (!completed.every(Boolean)) throw new Error("a run that nobody read did not complete");
  return found.map(({ receivedAt }) => receivedAt - begun);
}

/**
 * Measures turns that wait for one conversation: the time from the last byte of one turn's answer to the next turn's
 * request.
 */
async function measureHandOver(upstream: Upstream, { handOvers }: DurableScale): Promise<string> {
  const { port, stop } = await startServe(upstream.port, { variables: MANY });
  const turns = handOvers + 1;
  const rows: string[][] = [];
  try {
    for (const [name, extra] of [
      ["foreground, streamed", { stream: true }],
      ["background", { background: true }],
    ] as const) {
      const [conversation] = await onConnections(port, 1, 1, createConversation);
      await upstream.log("reset");
      await onConnections(port, turns, turns, (each) =>
        each.send(create("words=20&chunk=16", { ...extra, conversation })),
      );
      await untilAllEnded(upstream, turns);
      const { requests } = await upstream.log();
      const gaps = requests.slice(1).map(({ receivedAt }, index) => receivedAt - (requests[index]?.endedAt ?? 0));
      if (gaps.some((gap) => gap < 0)) throw new Error("two turns ran at the same time");
      rows.push([name, String(turns), number(quantile(gaps, 0.5), 1), number(quantile(gaps, 0.99), 1)]);
    }
  } finally {
    await stop();
  }
  const head = "From a turn's last byte to the next turn's request, one conversation";
  return table([head, "turns", "p50 ms", "p99 ms"], rows);
}
