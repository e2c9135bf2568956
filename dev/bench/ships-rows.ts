import { batchLineMicros } from "./batch.ts";
import { CHAIN_MODEL, CHAIN_USER, type Chain, isStored, load, messagesOf, STORED } from "./chains.ts";
import { COMING_MODEL, coming } from "./coming.ts";
import { CONVERSATION, PREVIOUS_ID, SAME_BYTES, TURNS, Turns, type Way } from "./growth.ts";
import type { Request } from "./load.ts";
import { memoryMb } from "./processes.ts";
import { ADDED } from "./rows.ts";
import { watchStreams } from "./streams.ts";
import { quantile } from "./tables.ts";
import { ask, DIRECT, type Measurement, type Question, type Row, responseIdIn, type Target } from "./targets.ts";

/** The rows of `npm run bench`. */

export const SERVE = "serve";
export const BEFORE = "before";
export const MINIMUM_NAME = "minimum";

export const SHORT_MODEL = "simulator?words=20";
const FLOOD_TOKENS = 500;
const FLOOD_MODEL = `simulator?words=${FLOOD_TOKENS}&chunk=1`;
const PACED_MODEL = "simulator?words=2000&tps=50";
const SLOW_MODEL = "simulator?words=60&tps=1";
export const CHAIN_LENGTH = 200;

/** The model server must list them: the gateway would look for an unlisted one with every request. */
export const SHIPS_MODELS: readonly string[] = [
  ...[SHORT_MODEL, FLOOD_MODEL, COMING_MODEL, CHAIN_MODEL, PACED_MODEL, SLOW_MODEL],
];

export const CPU = "CPU µs";
export const LATER = "CPU µs, a later turn";
export const FIRST = `first delta ms${ADDED}`;
export const STREAM_KB = "kB of an open stream";
export const GAP = "gap p99 ms";
export const [RESENT, BY_ID] = ["CPU µs, resent", "CPU µs, by id"];
export const LINE_RATIO = "a line : a create";

const isOurs = ({ name }: Target) => [SERVE, BEFORE].some((ours) => name === ours + STORED);

const OPEN = 1_000;

/** For processes that have answered nothing. */
export const openStreams: Row = {
  name: `${OPEN.toLocaleString("en-US")} open streams, a token a second`,
  metrics: { [STREAM_KB]: 0 },
  hasRatios: false,
  isOnce: true,
  async measure(target): Promise<Measurement> {
    if (target.name === DIRECT.name) return {};
    const before = memoryMb(target.pid).now;
    let open = before;
    const streams = { count: OPEN, model: SLOW_MODEL, rampMs: 4_000, settleMs: 1_500, windowMs: 500 };
    await watchStreams(target, streams, () => {
      open = memoryMb(target.pid).now;
    });
    return { [STREAM_KB]: ((open - before) * 1024) / OPEN };
  },
};

const json = [1, 32].map(
  (clients): Row => ({
    name: `JSON of 20 tokens, ${clients === 1 ? "a client" : `${clients} clients`}`,
    metrics: { [CPU]: 0, [LATER]: 0 },
    async measure(target, scale) {
      const question = { model: SHORT_MODEL, stream: false };
      const { micros } = await load(target, target.request(question), clients, scale);
      const measured: Measurement = { [CPU]: micros };
      if (isStored(target)) {
        const later = await load(target, await laterTurns(target, question, clients), clients, scale);
        measured[LATER] = later.micros;
      }
      return measured;
    },
  }),
);

/** A request for each client that continues a stored response of its own. */
async function laterTurns(target: Target, question: Question, clients: number): Promise<Request[]> {
  const requests: Request[] = [];
  while (requests.length < clients) {
    const previous = responseIdIn(await ask(target.port, target.request(question)));
    requests.push(target.request({ ...question, previous }));
  }
  return requests;
}

const stream: Row = {
  name: "A stream of 20 tokens, a client",
  metrics: { [FIRST]: 2, [CPU]: 0 },
  async measure(target, scale) {
    const request = target.request({ model: SHORT_MODEL, stream: true });
    const { samples, micros } = await load(target, request, 1, scale);
    const first = samples.map((sample) => sample.firstNeedleMs);
    return { [FIRST]: quantile(first, 0.5), [CPU]: micros };
  },
};

const token: Row = {
  name: "A token, an HTTP chunk each, 8 clients",
  metrics: { [CPU]: 1 },
  async measure(target, scale) {
    const { micros } = await load(target, target.request({ model: FLOOD_MODEL, stream: true }), 8, scale);
    return { [CPU]: micros / FLOOD_TOKENS };
  },
};

const paced: Row = {
  name: "512 streams at 20 ms",
  metrics: { [GAP]: 0, "CPU µs / delta": 0 },
  hasRatios: false,
  async measure(target, { windowMs }) {
    const streams = { count: 512, model: PACED_MODEL, rampMs: 500, settleMs: 500, windowMs: 2 * windowMs };
    const { gaps, came, cpuSeconds } = await watchStreams(target, streams);
    return { [GAP]: quantile(gaps, 0.99), "CPU µs / delta": (cpuSeconds * 1e6) / came };
  },
};

/**
 * A row that repeats the last turn of a conversation: each request is another branch from the same previous response,
 * so that the work stays the same. Other targets get the history in the body.
 */
function turn200(chains: ReadonlyMap<string, Chain>): Row {
  const [longest] = chains.values();
  return {
    name: `Turn ${CHAIN_LENGTH}, a stream of 20 tokens, 8 clients`,
    metrics: { [RESENT]: 0, [BY_ID]: 0 },
    async measure(target, scale) {
      const question = { model: CHAIN_MODEL, stream: true };
      const own = chains.get(target.name);
      const history = longest ? messagesOf(longest, CHAIN_LENGTH - 1) : [];
      const request = own
        ? target.request({ ...question, history: [CHAIN_USER], previous: own.ids[CHAIN_LENGTH - 2] })
        : target.request({ ...question, history: [...history, CHAIN_USER] });
      const { micros } = await load(target, request, 8, scale);
      return { [own ? BY_ID : RESENT]: micros };
    },
  };
}

/** The lengths that are compared. */
const [SHORT, LONG] = [10, 1_000] as const;
export const GROWTH_WAYS = [CONVERSATION, PREVIOUS_ID] as const;

/** A figure of either length is the mean of so many times `TURNS` turns, late ones in one conversation, early ones in as many. */
const GROWTH_ROUNDS = 10;

/** A turn's CPU late in a conversation beside that early in it, without what as many bytes in one message cost more. */
const growth: Row = {
  name: `Turn ${LONG.toLocaleString("en-US")} : turn ${SHORT}, beyond its bytes`,
  metrics: Object.fromEntries(GROWTH_WAYS.map(({ name }) => [name, 2])),
  hasRatios: false,
  async measure(target): Promise<Measurement> {
    if (!isOurs(target)) return {};
    const lengths: Lengths[] = [];
    for (const way of [SAME_BYTES, ...GROWTH_WAYS]) lengths.push(await Lengths.begin(target, way));
    // In turn, so that all have the same share of what else the machine does.
    for (let round = 0; round < GROWTH_ROUNDS; round += 1) for (const each of lengths) await each.measure();
    const [bytes, ...ways] = lengths;
    const more = bytes ? Math.max(0, bytes.lateMicros - bytes.earlyMicros) : 0;
    return Object.fromEntries(
      ways.map(({ way, earlyMicros, lateMicros }) => [way.name, (lateMicros - more) / earlyMicros]),
    );
  },
};

/** The CPU of turns of both lengths that go on in a way. */
class Lengths {
  readonly target: Target;
  readonly way: Way;
  readonly late: Turns;
  /** Sums of microseconds. */
  earlyMicros = 0;
  lateMicros = 0;

  private constructor(target: Target, way: Way, late: Turns) {
    this.target = target;
    this.way = way;
    this.late = late;
  }

  static async begin(target: Target, way: Way): Promise<Lengths> {
    const late = await Turns.begin(target, way);
    await late.takeUntil(LONG - (GROWTH_ROUNDS * TURNS) / 2);
    return new Lengths(target, way, late);
  }

  async measure(): Promise<void> {
    const early = await Turns.begin(this.target, this.way);
    await early.takeUntil(SHORT - TURNS / 2);
    this.earlyMicros += await early.measure();
    this.lateMicros += await this.late.measure();
  }
}

const BATCH_LINES = 1_000;

const batch: Row = {
  name: `A line of a batch of ${BATCH_LINES.toLocaleString("en-US")}, JSON of 20 tokens`,
  metrics: { [CPU]: 0, [LINE_RATIO]: 2 },
  hasRatios: false,
  async measure(target, scale): Promise<Measurement> {
    if (!isOurs(target)) return {};
    const create = () => load(target, target.request({ model: SHORT_MODEL, stream: false }), 32, scale);
    // As the creates, the lines are measured once their code is compiled.
    await batchLineMicros(target, SHORT_MODEL, BATCH_LINES);
    const before = await create();
    const line = await batchLineMicros(target, SHORT_MODEL, BATCH_LINES);
    const after = await create();
    return { [CPU]: line, [LINE_RATIO]: (2 * line) / (before.micros + after.micros) };
  },
};

/** All other rows. `chains` has the chain of each target that stores. */
export function shipsRows(chains: ReadonlyMap<string, Chain>): Row[] {
  return [...json, stream, token, paced, ...coming, turn200(chains), growth, batch];
}
