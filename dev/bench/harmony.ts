import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import {
  createTokenizer,
  hasSpecialLiteral,
  renderConversation,
  type Tokenizer,
  toText,
  toTokenIds,
} from "@responses-edge/harmony";
import { Connection, get, hammer, type Request, type Sample } from "./load.ts";
import { exactCpuSeconds, memoryMb } from "./processes.ts";
import { heapMb } from "./profile.ts";
import type { Scale } from "./scenarios.ts";
import { median } from "./statistics.ts";
import { ask, chatRequest, type Message, responseIdIn, responsesRequest, type Upstream } from "./targets.ts";
import { type RunningWorker, startWorker } from "./workers.ts";

/** The cost of gpt-oss, which is served by completions in Harmony, compared with other models. */

// Streams

/** Tokens of a streamed answer. Some are reasoning. Both models have the same number. */
export const STREAM_TOKENS = 539;

/**
 * The same reasoning before both. gpt-oss's tokenizer splits some of these words in two, and its markers are tokens.
 */
const STREAM_WORDS = { chat: 526, harmony: 480 };

const READS = [16, 1] as const;
const NAMES = { chat: "simulator-reasoning", harmony: "simulator-gpt-oss" };
type EngineName = keyof typeof NAMES;
/** Tokens that the usage counts and no event shows: the markers of a chat model's reasoning, and its end token. */
const MARKERS: Record<EngineName, number> = { chat: 3, harmony: 0 };
const ENGINES = ["chat", "harmony"] as const;

export interface StreamCost {
  /** Tokens in one HTTP chunk of the model server. Each token has an event of its own. */
  perRead: (typeof READS)[number];
  store: boolean;
  /** CPU µs per token of each engine. */
  engines: Record<EngineName, number>;
}

function streamModel(engine: EngineName, perRead: number): string {
  return `${NAMES[engine]}?words=${STREAM_WORDS[engine]}&chunk=${perRead}`;
}

export function streamRequest(engine: EngineName, perRead: number, store: boolean): Request {
  return responsesRequest({ model: streamModel(engine, perRead), stream: true }, { store });
}

/**
 * Workers with one engine each, which either store or not: one engine's effects on its process do not affect another.
 */
export class StreamWorkers {
  readonly #workers: { engine: EngineName; store: boolean; worker: RunningWorker }[];

  private constructor(workers: { engine: EngineName; store: boolean; worker: RunningWorker }[]) {
    this.#workers = workers;
  }

  static async start(upstream: Upstream): Promise<StreamWorkers> {
    const workers = [];
    for (const store of [false, true]) {
      for (const engine of ENGINES) {
        const worker = await startWorker("ours", upstream.port);
        workers.push({ engine, store, worker });
        const text = await ask(worker.port, streamRequest(engine, 1, store));
        const tokens = Number(/"output_tokens":(\d+)/.exec(text)?.[1]);
        const expected = STREAM_TOKENS + MARKERS[engine];
        if (tokens !== expected) throw new Error(`${engine}: ${tokens} tokens instead of ${expected}`);
      }
    }
    return new StreamWorkers(workers);
  }

  /** Measures one round. `quietly` gets one engine's part of it, which takes as long as a scenario of one target. */
  async measure(scale: Scale, quietly: <T>(part: () => Promise<T>) => Promise<T>): Promise<StreamCost[]> {
    const costs: StreamCost[] = [];
    for (const perRead of READS) {
      for (const store of [false, true]) {
        const engines = { chat: Number.NaN, harmony: Number.NaN };
        for (const { engine, worker } of this.#workers.filter((one) => one.store === store)) {
          engines[engine] = await quietly(() =>
            cpuPerToken(worker, streamRequest(engine, perRead, store), engine, scale),
          );
        }
        costs.push({ perRead, store, engines });
      }
    }
    return costs;
  }

  async stop(): Promise<void> {
    for (const { worker } of this.#workers) await worker.stop();
  }
}

async function cpuPerToken(
  { port, pid }: RunningWorker,
  request: Request,
  engine: EngineName,
  { warmUpMs, windowMs }: Scale,
): Promise<number> {
  await hammer(port, request, { clients: 8, durationMs: warmUpMs });
  const before = exactCpuSeconds(pid);
  const { samples } = await hammer(port, request, { clients: 8, durationMs: windowMs });
  const micros = (exactCpuSeconds(pid) - before) * 1e6;
  const least = Math.min(...samples.map((sample) => sample.needles));
  if (least < STREAM_WORDS[engine]) throw new Error(`${engine} sent ${least} deltas`);
  return micros / (samples.length * STREAM_TOKENS);
}

// Long histories

export const HISTORY_TOKENS = 128_000;
const HISTORY_MESSAGES = 64;

/**
 * A literal of a special token, for which the prompt is sent as token ids. It is at the very end, so that the whole
 * prompt is searched for it.
 */
const LITERAL = " What does <|end|> mean?";

/** A way in which a long history reaches the model server. */
interface HistoryWay {
  name: string;
  model: string;
  literal: boolean;
  byId: boolean;
}

const SHORT_ANSWER = "words=20&chunk=16";
const CHAT_MODEL = `simulator?${SHORT_ANSWER}`;
const HARMONY_MODEL = `simulator-gpt-oss?${SHORT_ANSWER}`;
/** vLLM repeats the ids of the prompt in its first event. */
const HARMONY_LONG_MODEL = `${HARMONY_MODEL}&prompt=${HISTORY_TOKENS}`;

const HISTORY_WAYS: readonly HistoryWay[] = [
  { name: "another model, resent", model: CHAT_MODEL, literal: false, byId: false },
  { name: "gpt-oss as text, resent", model: HARMONY_LONG_MODEL, literal: false, byId: false },
  { name: "the same if vLLM did not repeat the prompt's ids", model: HARMONY_MODEL, literal: false, byId: false },
  { name: "gpt-oss as token ids, resent", model: HARMONY_LONG_MODEL, literal: true, byId: false },
  { name: "another model, by id", model: CHAT_MODEL, literal: false, byId: true },
  { name: "gpt-oss as text, by id", model: HARMONY_LONG_MODEL, literal: false, byId: true },
  { name: "gpt-oss as token ids, by id", model: HARMONY_LONG_MODEL, literal: true, byId: true },
];

export interface HistoryCost {
  name: string;
  /** Bytes of the request to the model server. */
  promptBytes: number;
  /**
   * The first long request of a process that has answered short ones; absent if an earlier turn has loaded the history
   * before.
   */
  first?: { cpuMs: number; firstDeltaMs: number };
  warm: { cpuMs: number; firstDeltaMs: number };
}

/**
 * Measures the CPU of the gateway's process per request, and the time to the first delta, for each way of a long
 * history.
 */
export async function measureHistories(upstream: Upstream, scale: Scale): Promise<HistoryCost[]> {
  const history = longHistory();
  const costs: HistoryCost[] = [];
  for (const way of HISTORY_WAYS) costs.push(await measureHistory(way, history, upstream, scale));
  return costs;
}

async function measureHistory(
  { name, model, literal, byId }: HistoryWay,
  history: readonly Message[],
  upstream: Upstream,
  { windowMs }: Scale,
): Promise<HistoryCost> {
  const worker = await startWorker("ours", upstream.port);
  const last: Message = { role: "user", content: `And now?${literal ? LITERAL : ""}` };
  const connection = await Connection.open(worker.port);
  try {
    // Afterwards the code is warm, but no tokenizer is loaded: these requests are short, and have no literal.
    for (let index = 0; index < 5; index += 1)
      await connection.send(responsesRequest({ model, stream: true }, NOT_STORED));
    let request = responsesRequest({ model, stream: true, history: [...history, last] }, NOT_STORED);
    if (byId) {
      const turn = responsesRequest({ model, stream: true, history }, { store: true });
      const previous_response_id = responseIdIn((await connection.read(turn)).text);
      request = responsesRequest({ model, stream: true, history: [last] }, { ...NOT_STORED, previous_response_id });
    }
    const timed = async () => {
      const before = exactCpuSeconds(worker.pid);
      const { firstNeedleMs } = await connection.send(request);
      return { cpuMs: (exactCpuSeconds(worker.pid) - before) * 1000, firstDeltaMs: firstNeedleMs };
    };
    const first = await timed();
    for (let index = 0; index < 2; index += 1) await timed();
    const times: Awaited<ReturnType<typeof timed>>[] = [];
    const count = windowMs >= 1000 ? 10 : 4;
    while (times.length < count) times.push(await timed());
    const warm = {
      cpuMs: times.reduce((sum, { cpuMs }) => sum + cpuMs, 0) / times.length,
      firstDeltaMs: median(times.map(({ firstDeltaMs }) => firstDeltaMs)),
    };
    return { name, promptBytes: await upstream.promptBytes(), ...(!byId && { first }), warm };
  } finally {
    connection.close();
    await worker.stop();
  }
}

const NOT_STORED = { store: false };

/** A conversation of `HISTORY_TOKENS` tokens about this project's own sources: prose and code, without literals. */
export function longHistory(): Message[] {
  const tokenizer = createTokenizer(vocabulary());
  let text = ownText().replaceAll("<|", "<");
  const ids = tokenizer.encode(text);
  while (ids.length < HISTORY_TOKENS) for (const id of tokenizer.encode(text)) ids.push(id);
  text = tokenizer.decode(ids.slice(0, HISTORY_TOKENS)).replaceAll("\uFFFD", "");
  const size = Math.ceil(text.length / HISTORY_MESSAGES);
  return Array.from({ length: HISTORY_MESSAGES }, (_, index) => ({
    role: index % 2 === 0 ? "user" : "assistant",
    content: text.slice(index * size, (index + 1) * size).toWellFormed(),
  }));
}

function ownText(): string {
  const files = ["README.md", ...[...filesIn("docs"), ...filesIn("src")].filter((name) => /\.(ts|md)$/.test(name))];
  return files.map((name) => readFileSync(new URL(name, ROOT), "utf8")).join("\n\n");
}

const ROOT = new URL("../../", import.meta.url);

function filesIn(directory: string): string[] {
  const entries = readdirSync(new URL(directory, ROOT), { recursive: true, encoding: "utf8" });
  return entries.sort().map((name) => `${directory}/${name}`);
}

function vocabulary(): ArrayBuffer {
  const file = createRequire(import.meta.url).resolve("gpt-tokenizer/data/o200k_base.tiktoken");
  return new Uint8Array(readFileSync(file)).buffer;
}

export interface ModuleCost {
  step: string;
  firstMs: number;
  warmMs: number;
}

/** Measures the steps of rendering such a history, by calls of the modules in this process. */
export function measureModules(): ModuleCost[] {
  const history = longHistory();
  const bytes = vocabulary();
  const costs: ModuleCost[] = [];
  const step = <T>(name: string, work: () => T): T => {
    const times: number[] = [];
    let result: T;
    do {
      const start = performance.now();
      result = work();
      times.push(performance.now() - start);
    } while (times.length < 6);
    const [firstMs = Number.NaN, ...later] = times;
    costs.push({ step: name, firstMs, warmMs: median(later) });
    return result;
  };
  const messages = history.map(({ role, content }) => ({
    role,
    ...(role === "assistant" && { channel: "final" as const }),
    content: [{ type: "text" as const, text: content }],
  }));
  const segments = step("render into segments", () => renderConversation(messages));
  step("search them for literals", () => hasSpecialLiteral(segments));
  step("join them as text, and as JSON", () => JSON.stringify(toText(segments)));
  const tokenizer: Tokenizer = step("load the tokenizer", () => createTokenizer(bytes));
  const ids = step("tokenise them", () => toTokenIds(segments, tokenizer));
  step("the ids as JSON", () => JSON.stringify(ids));
  return costs;
}

// Cold starts

interface ColdKind {
  name: string;
  worker: "pipe" | "ours";
  request: Request;
}

const COLD_KINDS: readonly ColdKind[] = [
  { name: "a Worker that only pipes", worker: "pipe", request: chatRequest({ model: CHAT_MODEL, stream: true }) },
  { name: "/health", worker: "ours", request: get("/health", "ok") },
  { name: "another model's response", worker: "ours", request: hello(CHAT_MODEL) },
  { name: "gpt-oss's, prompt as text", worker: "ours", request: hello(HARMONY_MODEL) },
  { name: "gpt-oss's, prompt as token ids", worker: "ours", request: hello(HARMONY_MODEL, LITERAL) },
];

function hello(model: string, more = ""): Request {
  return responsesRequest({ model, stream: true, history: [{ role: "user", content: `Hello${more}` }] }, NOT_STORED);
}

export interface ColdStart {
  name: string;
  /** Milliseconds from the process's start to the end of the first answer. `secondMs`: the duration of the second. */
  firstMs: number[];
  secondMs: number[];
  /** CPU ms of the process until the first answer. */
  cpuMs: number[];
  memoryMb: number[];
  /** The size of JavaScript's heap afterwards; undefined for a process that is not our Worker. */
  heapMb: number | undefined;
}

/** Measures the time from a Worker's start to its first answer, by the kind of the first request. */
export async function measureColdStarts(upstream: Upstream, { rounds }: Scale): Promise<ColdStart[]> {
  const starts: ColdStart[] = [];
  for (const { name, worker: kind, request } of COLD_KINDS) {
    const worker = await startWorker(kind, upstream.port);
    // Now the model server has its recording, and the disk's cache has all files.
    await ask(worker.port, request);
    await worker.stop();
    starts.push({
      name,
      firstMs: [],
      secondMs: [],
      cpuMs: [],
      memoryMb: [],
      heapMb: await heapAfter(kind, request, upstream),
    });
  }
  for (let index = 0; index < 5 * rounds; index += 1) {
    for (const [at, { worker: kind, request }] of COLD_KINDS.entries()) {
      const worker = await startWorker(kind, upstream.port);
      await worker.stop();
      const begun = performance.now();
      worker.restart();
      const connection = await firstConnection(worker.port);
      await connection.send(request);
      starts[at]?.firstMs.push(performance.now() - begun);
      starts[at]?.cpuMs.push(exactCpuSeconds(worker.pid) * 1000);
      starts[at]?.memoryMb.push(memoryMb(worker.pid).now);
      const second: Sample = await connection.send(request);
      starts[at]?.secondMs.push(second.totalMs);
      connection.close();
      await worker.stop();
    }
  }
  return starts;
}

async function heapAfter(kind: ColdKind["worker"], request: Request, upstream: Upstream): Promise<number | undefined> {
  if (kind !== "ours") return undefined;
  const worker = await startWorker(kind, upstream.port, { inspect: true });
  try {
    await ask(worker.port, request);
    return await heapMb(worker.inspectorPort ?? 0);
  } finally {
    await worker.stop();
  }
}

/** A connection to a starting process. */
async function firstConnection(port: number): Promise<Connection> {
  for (const deadline = performance.now() + 10_000; ; ) {
    try {
      return await Connection.open(port);
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }
}

/** All models that these measurements use. */
export const HARMONY_MODELS: readonly string[] = [
  ...ENGINES.flatMap((engine) => READS.map((perRead) => streamModel(engine, perRead))),
  CHAT_MODEL,
  HARMONY_MODEL,
  HARMONY_LONG_MODEL,
];

/** Requests whose profiles tell where gpt-oss's CPU goes. */
export function harmonyProfiles(): { name: string; request: Request; clients: number }[] {
  const history = longHistory();
  const long = (more: string) => {
    const last: Message = { role: "user", content: `And now?${more}` };
    return responsesRequest({ model: HARMONY_LONG_MODEL, stream: true, history: [...history, last] }, NOT_STORED);
  };
  return [
    ...READS.flatMap((perRead) =>
      ENGINES.map((engine) => ({
        name: `${NAMES[engine]}, ${STREAM_TOKENS} tokens, ${perRead} per HTTP chunk`,
        request: streamRequest(engine, perRead, false),
        clients: 8,
      })),
    ),
    { name: "gpt-oss, a history of 128,000 tokens as text", request: long(""), clients: 1 },
    { name: "gpt-oss, a history of 128,000 tokens as token ids", request: long(LITERAL), clients: 1 },
  ];
}
