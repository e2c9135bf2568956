import { batchLineMicros } from "./batch.ts";
import { CHAIN_MODEL, CHAIN_USER, type Chain, isStored, load, messagesOf, STORED } from "./chains.ts";
import { COMING_MODEL, coming } from "./coming.ts";
import { CONVERSATION, measureWay, PREVIOUS_ID, SAME_BYTES, TURNS, type Way } from "./growth.ts";
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

/** A figure of either length is the mean of this many turns, in one long conversation or in several short ones. */
const GROWTH_TURNS = 200;

/** A turn's CPU late in a conversation beside that early in it, without what as many bytes in one message cost more. */
const growth: Row = {
  name: `Turn ${LONG.toLocaleString("en-US")} : turn ${SHORT}, beyond its bytes`,
  metrics: Object.fromEntries(GROWTH_WAYS.map(({ name }) => [name, 2])),
  hasRatios: false,
  async measure(target): Promise<Measurement> {
    if (!isOurs(target)) return {};
    const [few, many] = await measureLengths(target, SAME_BYTES);
    const measured: Measurement = {};
    for (const way of GROWTH_WAYS) {
      const [early, late] = await measureLengths(target, way);
      measured[way.name] = (late - Math.max(0, many - few)) / early;
    }
    return measured;
  },
};

/** The CPU of a turn at both lengths, in microseconds. */
async function measureLengths(target: Target, way: Way): Promise<[early: number, late: number]> {
  const conversations = GROWTH_TURNS / TURNS;
  let early = 0;
  for (let count = 0; count < conversations; count += 1) {
    const [micros = 0] = await measureWay(target, way, [SHORT]);
    early += micros / conversations;
  }
  const [late = 0] = await measureWay(target, way, [LONG], GROWTH_TURNS);
  return [early, late];
}

const BATCH_LINES = 1_000;

const batch: Row = {
  name: `A line of a batch of ${BATCH_LINES.toLocaleString("en-US")}, JSON of 20 tokens`,
  metrics: { [CPU]: 0, [LINE_RATIO]: 2 },
  hasRatios: false,
  async measure(target, scale): Promise<Measurement> {
    if (!isOurs(target)) return {};
    const create = await load(target, target.request({ model: SHORT_MODEL, stream: false }), 32, scale);
    // As the creates, the lines are measured once their code is compiled.
    await batchLineMicros(target, SHORT_MODEL, BATCH_LINES);
    const line = await batchLineMicros(target, SHORT_MODEL, BATCH_LINES);
    return { [CPU]: line, [LINE_RATIO]: line / create.micros };
  },
};

/** All other rows. `chains` has the chain of each target that stores. */
export function shipsRows(chains: ReadonlyMap<string, Chain>): Row[] {
  return [...json, stream, token, paced, ...coming, turn200(chains), growth, batch];
}
