import { Connection, hammer, post, type Request, type Sample } from "./load.ts";
import { MEMORY_MODEL, MEMORY_WARM_UP } from "./memory.ts";
import { measurePaced, PACED_MODEL } from "./paced.ts";
import { cpuSeconds } from "./processes.ts";
import { quantile } from "./statistics.ts";
import {
  ask,
  chatRequest,
  type Message,
  type Question,
  type Running,
  responseIdIn,
  responsesRequest,
  type Target,
  type Upstream,
} from "./targets.ts";
import { startWorker } from "./workers.ts";

/** The measurements of a target in one round, by the metric's name. */
export type Measurement = Record<string, number>;

export interface Scenario {
  name: string;
  model: string;
  /** The name of each metric, and its number of decimals. */
  metrics: Record<string, number>;
  measure(target: Target, scale: Scale): Promise<Measurement>;
}

/** The length of one measurement of one target, in milliseconds. */
export interface Scale {
  windowMs: number;
  warmUpMs: number;
  rounds: number;
}

const LATENCY = { "p50 ms": 2, "p99 ms": 2 };

/** Runs a load after a warm-up. The CPU is that of the target's process in the same window. */
export async function load(target: Target, question: Question, clients: number, { windowMs, warmUpMs }: Scale) {
  const request = target.request(question);
  await hammer(target.port, request, { clients, durationMs: warmUpMs });
  const before = cpuSeconds(target.pid);
  const { samples, seconds } = await hammer(target.port, request, { clients, durationMs: windowMs });
  return { samples, seconds, cpuMicros: (cpuSeconds(target.pid) - before) * 1e6 };
}

/** Throws if an answer has fewer deltas than requested tokens. */
function expectDeltas(target: Target, samples: readonly Sample[], words: number): void {
  const least = Math.min(...samples.map((sample) => sample.needles));
  if (least < words) throw new Error(`${target.name} sent ${least} deltas instead of ${words}`);
}

function flood(name: string, words: number, chunk: number): Scenario {
  const model = `simulator?words=${words}&chunk=${chunk}`;
  return {
    name,
    model,
    metrics: { "deltas/s": 0, "CPU µs / delta": 2, "CPU µs / stream": 0 },
    async measure(target, scale) {
      const question = { model, stream: true };
      const { samples, seconds, cpuMicros } = await load(target, question, 8, scale);
      expectDeltas(target, samples, words);
      const deltas = samples.length * words;
      return {
        "deltas/s": deltas / seconds,
        "CPU µs / delta": cpuMicros / deltas,
        "CPU µs / stream": cpuMicros / samples.length,
      };
    },
  };
}

function paced(streams: number): Scenario {
  return {
    name: `${streams} streams at 50 tokens/s`,
    model: PACED_MODEL,
    metrics: {
      "share in time": 2,
      "gap p99 ms": 0,
      "first event p50 ms": 2,
      "first event p99 ms": 0,
      "CPU µs / delta": 0,
    },
    measure: (target, scale) => measurePaced(target, streams, scale),
  };
}

export const SHORT_MODEL = "simulator?words=20";

export const scenarios: readonly Scenario[] = [
  {
    name: "First event, 1 client, 20 deltas",
    model: SHORT_MODEL,
    metrics: {
      "first event p50 ms": 2,
      "first event p99 ms": 2,
      "first delta p50 ms": 2,
      "first delta p99 ms": 2,
      "CPU µs / stream": 0,
    },
    async measure(target, scale) {
      const question = { model: SHORT_MODEL, stream: true };
      const { samples, cpuMicros } = await load(target, question, 1, scale);
      expectDeltas(target, samples, 20);
      return { ...firstTimes(samples), "CPU µs / stream": cpuMicros / samples.length };
    },
  },
  flood("Flood, 8 clients × 500 deltas, 16 per HTTP chunk", 500, 16),
  flood("Flood, 8 clients × 500 deltas, an HTTP chunk each (vLLM)", 500, 1),
  flood("Short answers, 8 clients × 20 deltas, 16 per HTTP chunk", 20, 16),
  paced(128),
  paced(512),
  {
    name: "JSON answers of 20 tokens, 1 client",
    model: SHORT_MODEL,
    metrics: LATENCY,
    measure: (target, scale) => json(target, 1, scale),
  },
  {
    name: "JSON answers of 20 tokens, 32 clients",
    model: SHORT_MODEL,
    metrics: { "requests/s": 0, ...LATENCY, "CPU µs / request": 0 },
    measure: (target, scale) => json(target, 32, scale),
  },
];

export function firstTimes(samples: readonly Sample[]) {
  const events = samples.map((sample) => sample.firstByteMs);
  const deltas = samples.map((sample) => sample.firstNeedleMs);
  return {
    "first event p50 ms": quantile(events, 0.5),
    "first event p99 ms": quantile(events, 0.99),
    "first delta p50 ms": quantile(deltas, 0.5),
    "first delta p99 ms": quantile(deltas, 0.99),
  };
}

async function json(target: Target, clients: number, scale: Scale): Promise<Measurement> {
  const question = { model: SHORT_MODEL, stream: false };
  const { samples, seconds, cpuMicros } = await load(target, question, clients, scale);
  const totals = samples.map((sample) => sample.totalMs);
  return {
    "requests/s": samples.length / seconds,
    "p50 ms": quantile(totals, 0.5),
    "p99 ms": quantile(totals, 0.99),
    "CPU µs / request": cpuMicros / samples.length,
  };
}

export interface StoredTurnCost {
  turn: string;
  calls: string[];
  rowsWritten: number;
  rowsRead: number;
  alarms: number;
}

/** The cost of stored turns in their home. The server itself counts it (counting-worker.js). */
export async function countStoredTurns(upstream: Upstream): Promise<StoredTurnCost[]> {
  const worker = await startWorker("counting", upstream.port);
  const costs: StoredTurnCost[] = [];
  try {
    let previous: string | undefined;
    const turns: [name: string, model: string, store: boolean, chained: boolean][] = [
      ["turn 1 of a tree, in a new home", "simulator?words=500", true, false],
      ["turn 1 of the next tree there", "simulator?words=500", true, false],
      ["turn 2", "simulator?words=500", true, true],
      ["turn 3", "simulator?words=500", true, true],
      ["a turn of 300,000 words (1.5 MB of text)", "simulator?words=300000&chunk=64", true, true],
      ["a turn with store:false that continues it", "simulator?words=500", false, true],
      ["a turn with store:false", "simulator?words=500", false, false],
    ];
    for (const [turn, model, store, chained] of turns) {
      const request = responsesRequest(
        { model, stream: true },
        { store, ...(chained && { previous_response_id: previous }) },
      );
      const id = responseIdIn(await ask(worker.port, request));
      if (store) previous = id;
      const counts = (await (await fetch(`http://127.0.0.1:${worker.port}/bench/counts`)).json()) as StoredTurnCost;
      costs.push({ ...counts, turn });
    }
  } finally {
    await worker.stop();
  }
  return costs;
}

/** Measures the CPU µs of a stored JSON turn that continues another. Each of `clients` has its own conversation. */
export async function measureLaterTurns(
  { port, pid }: Running,
  { warmUpMs, windowMs }: Scale,
  clients: number,
): Promise<number> {
  const question = { model: SHORT_MODEL, stream: false };
  const requests: Request[] = [];
  while (requests.length < clients) {
    const previous_response_id = responseIdIn(await ask(port, responsesRequest(question, { store: true })));
    requests.push(responsesRequest(question, { store: true, previous_response_id }));
  }
  await hammer(port, requests, { clients, durationMs: warmUpMs });
  const before = cpuSeconds(pid);
  const { samples } = await hammer(port, requests, { clients, durationMs: windowMs });
  return ((cpuSeconds(pid) - before) * 1e6) / samples.length;
}

/**
 * Measures the CPU µs per request of a Worker that only writes one row: each time into a new object, and always into
 * the same one.
 */
export async function measureObjectMinimum({ warmUpMs, windowMs }: Scale): Promise<{ fresh: number; known: number }> {
  const worker = await startWorker("object", 0);
  const measure = async (path: string) => {
    const request = post(path, {}, "never");
    await hammer(worker.port, request, { clients: 8, durationMs: warmUpMs });
    const before = cpuSeconds(worker.pid);
    const { samples } = await hammer(worker.port, request, { clients: 8, durationMs: windowMs });
    return ((cpuSeconds(worker.pid) - before) * 1e6) / samples.length;
  };
  try {
    return { known: await measure("/known"), fresh: await measure("/new") };
  } finally {
    await worker.stop();
  }
}

/** The ways in which a turn of a chain is requested. The first three resend the history in the body. */
export const CHAIN_WAYS = ["direct", "pipe", "resent", "by id", "by id, stored"] as const;
export type ChainWay = (typeof CHAIN_WAYS)[number];

export interface ChainTurn {
  turn: number;
  /** Bytes of the request to the model server. */
  promptBytes: number;
  ways: Record<ChainWay, { cpuMicros: number; firstDeltaMs: number }>;
}

export const CHAIN_LENGTH = 200;
export const CHAIN_MODEL = "simulator?words=20&chunk=16";

/**
 * All models that the scenarios use. The model server must list them: the gateway would look for an unlisted one with
 * every request.
 */
export const SCENARIO_MODELS: readonly string[] = [
  ...new Set([...scenarios.map(({ model }) => model), MEMORY_MODEL, MEMORY_WARM_UP, CHAIN_MODEL]),
];

const CHAIN_USER: Message = {
  role: "user",
  content: "A sentence of some length, as people write them, to which the model has an answer.",
};

/** A chain of stored turns in one Worker. Its turns can be requested again and again. */
export class Chain {
  readonly #ids: string[];
  readonly #history: readonly Message[];
  readonly #targets: Record<"direct" | "pipe" | "ours", { port: number; pid: number }>;
  readonly #upstream: Upstream;

  private constructor(
    ids: string[],
    history: Message[],
    targets: Record<"direct" | "pipe" | "ours", { port: number; pid: number }>,
    upstream: Upstream,
  ) {
    this.#ids = ids;
    this.#history = history;
    this.#targets = targets;
    this.#upstream = upstream;
  }

  static async build(worker: Running, pipe: { port: number; pid: number }, upstream: Upstream): Promise<Chain> {
    const connection = await Connection.open(worker.port);
    const ids: string[] = [];
    const history: Message[] = [];
    while (ids.length < CHAIN_LENGTH - 1) {
      const question = { model: CHAIN_MODEL, stream: false, history: [CHAIN_USER] };
      const request = responsesRequest(question, { store: true, previous_response_id: ids.at(-1) });
      const { text } = await connection.read(request);
      ids.push(responseIdIn(text));
      history.push(CHAIN_USER, { role: "assistant", content: /"text":"([^"]*)"/.exec(text)?.[1] ?? "" });
    }
    connection.close();
    return new Chain(ids, history, { direct: upstream, pipe, ours: worker }, upstream);
  }

  /** The messages of the last turn, including the history. */
  get history(): readonly Message[] {
    return [...this.#history, CHAIN_USER];
  }

  requests(turn: number): Record<ChainWay, Request> {
    const asked = { model: CHAIN_MODEL, stream: true };
    const whole = { ...asked, history: [...this.#history.slice(0, 2 * (turn - 1)), CHAIN_USER] };
    const last = { ...asked, history: [CHAIN_USER] };
    const previous_response_id = this.#ids[turn - 2];
    return {
      direct: chatRequest(whole),
      pipe: chatRequest(whole),
      resent: responsesRequest(whole, { store: false }),
      "by id": responsesRequest(last, { store: false, previous_response_id }),
      "by id, stored": responsesRequest(last, { store: true, previous_response_id }),
    };
  }

  /**
   * Measures one turn of the chain by many requests. Each is another branch from the same previous response, so the
   * work stays the same. CPU is measured with 8 clients, the time to the first delta with one.
   */
  async measure(turn: number, { windowMs, warmUpMs }: Scale): Promise<ChainTurn> {
    const requests = this.requests(turn);
    const ways = {} as ChainTurn["ways"];
    const promptBytes: Partial<Record<ChainWay, number>> = {};
    for (const way of CHAIN_WAYS) {
      const { port, pid } = this.#targets[way === "direct" || way === "pipe" ? way : "ours"];
      await hammer(port, requests[way], { clients: 8, durationMs: warmUpMs });
      const before = cpuSeconds(pid);
      const busy = await hammer(port, requests[way], { clients: 8, durationMs: windowMs });
      const cpuMicros = ((cpuSeconds(pid) - before) * 1e6) / busy.samples.length;
      const { samples } = await hammer(port, requests[way], { clients: 1, durationMs: windowMs / 2 });
      ways[way] = { cpuMicros, firstDeltaMs: firstTimes(samples)["first delta p50 ms"] };
      promptBytes[way] = await this.#upstream.promptBytes();
    }
    const { resent = 0, "by id": byId = 0 } = promptBytes;
    if (Math.abs(byId - resent) > 0.02 * resent)
      throw new Error(`turn ${turn}: prompts of ${byId} and ${resent} bytes`);
    return { turn, promptBytes: byId, ways };
  }
}
