import { COMING_MODEL, coming } from "./coming.ts";
import { Connection, hammer, type Request } from "./load.ts";
import { cpuSeconds, memoryMb } from "./processes.ts";
import { startServe } from "./serve.ts";
import { median, number, quantile, table } from "./tables.ts";
import {
  ask,
  DIRECT,
  type Measurement,
  type Message,
  type Question,
  type Row,
  responseIdIn,
  responsesRequest,
  type Scale,
  startTarget,
  type Target,
  type TargetKind,
  type Upstream,
} from "./targets.ts";
import { startTranslator } from "./translator.ts";

/**
 * `npm run bench`: the cost of a request to `serve` as it ships, beside a Worker that only translates and other
 * gateways, or beside the `serve` of another checkout. Every target is measured in every round.
 */

const STORED = ", stored";
const [SERVE, BEFORE, TRANSLATES] = ["serve", "before", "translates"];

/** `serve` of a checkout, not stored and stored, a process each. */
function served(name: string, checkout?: string): TargetKind[] {
  return [false, true].map((store) => ({
    name: name + (store ? STORED : ""),
    start: ({ port }) => startServe(port, checkout === undefined ? {} : { checkout }),
    request: (question) => responsesRequest(question, { store }),
  }));
}

function comparedWithPeers(peers: readonly TargetKind[]): TargetKind[] {
  const translates: TargetKind = {
    name: TRANSLATES,
    start: ({ port }) => startTranslator(port),
    request: (question) => responsesRequest(question, { store: false }),
  };
  return [DIRECT, translates, ...served(SERVE), ...peers];
}

const SHORT_MODEL = "simulator?words=20";
const FLOOD_TOKENS = 500;
const FLOOD_MODEL = `simulator?words=${FLOOD_TOKENS}&chunk=1`;
const CHAIN_LENGTH = 200;
const CHAIN_MODEL = "simulator?words=20&chunk=16";

/** The model server must list them: the gateway would look for an unlisted one with every request. */
export const SHIPS_MODELS: readonly string[] = [SHORT_MODEL, FLOOD_MODEL, COMING_MODEL, CHAIN_MODEL];

const CPU = "CPU µs";
const LATER = "CPU µs, a later turn";
const FIRST = "first delta ms, added";

const rows: readonly Row[] = [
  ...[1, 32].map(
    (clients): Row => ({
      name: `JSON of 20 tokens, ${clients === 1 ? "a client" : `${clients} clients`}`,
      metrics: { [CPU]: 0, [LATER]: 0 },
      async measure(target, scale) {
        const question = { model: SHORT_MODEL, stream: false };
        const { micros } = await load(target, target.request(question), clients, scale);
        const measured: Measurement = { [CPU]: micros };
        if (isOurs(target) && isStored(target)) {
          const later = await load(target, await laterTurns(target, question, clients), clients, scale);
          measured[LATER] = later.micros;
        }
        return measured;
      },
    }),
  ),
  {
    name: "A stream of 20 tokens, a client",
    metrics: { [FIRST]: 2, [CPU]: 0 },
    async measure(target, scale) {
      const request = target.request({ model: SHORT_MODEL, stream: true });
      const { samples, micros } = await load(target, request, 1, scale);
      const first = samples.map((sample) => sample.firstNeedleMs);
      return { [FIRST]: quantile(first, 0.5), [CPU]: micros };
    },
  },
  {
    name: "A token, an HTTP chunk each, 8 clients",
    metrics: { [CPU]: 1 },
    async measure(target, scale) {
      const { micros } = await load(target, target.request({ model: FLOOD_MODEL, stream: true }), 8, scale);
      return { [CPU]: micros / FLOOD_TOKENS };
    },
  },
  coming,
];

const isStored = ({ name }: TargetKind) => name.endsWith(STORED);
const isOurs = ({ name }: TargetKind) => name.startsWith(SERVE) || name.startsWith(BEFORE);

/** Repeats requests after a warm-up. Gives the CPU of the target's process for one, in microseconds. */
async function load(
  { port, pid }: Target,
  request: Request | readonly Request[],
  clients: number,
  { warmUpMs, windowMs }: Scale,
) {
  await hammer(port, request, { clients, durationMs: warmUpMs });
  const before = cpuSeconds(pid);
  const { samples } = await hammer(port, request, { clients, durationMs: windowMs });
  return { samples, micros: ((cpuSeconds(pid) - before) * 1e6) / samples.length };
}

/** A request for each client that continues a stored response of its own. */
async function laterTurns({ port }: Target, question: Question, clients: number): Promise<Request[]> {
  const requests: Request[] = [];
  while (requests.length < clients) {
    const first = responsesRequest(question, { store: true });
    const previous_response_id = responseIdIn(await ask(port, first));
    requests.push(responsesRequest(question, { store: true, previous_response_id }));
  }
  return requests;
}

/** A chain of stored turns: the id of its last one, and its messages. */
interface Chain {
  last: string;
  history: Message[];
}

const CHAIN_USER: Message = {
  role: "user",
  content: "A sentence of some length, as people write them, to which the model has an answer.",
};

async function buildChain({ port }: Target): Promise<Chain> {
  const connection = await Connection.open(port);
  const question = { model: CHAIN_MODEL, stream: false, history: [CHAIN_USER] };
  let last: string | undefined;
  const history: Message[] = [];
  for (let turn = 1; turn < CHAIN_LENGTH; turn += 1) {
    const { text } = await connection.read(responsesRequest(question, { store: true, previous_response_id: last }));
    last = responseIdIn(text);
    history.push(CHAIN_USER, { role: "assistant", content: /"text":"([^"]*)"/.exec(text)?.[1] ?? "" });
  }
  connection.close();
  return { last: last ?? "", history };
}

/**
 * A row that repeats the last turn of a conversation: each request is another branch from the same previous response,
 * so that the work stays the same. Other targets get the history in the body.
 */
function chainRow(chains: ReadonlyMap<string, Chain>): Row {
  const [resent, byId] = ["CPU µs, resent", "CPU µs, by id"];
  const [{ history } = { history: [] }] = chains.values();
  return {
    name: `Turn ${CHAIN_LENGTH}, a stream of 20 tokens, 8 clients`,
    metrics: { [resent]: 0, [byId]: 0 },
    async measure(target, scale) {
      const question = { model: CHAIN_MODEL, stream: true };
      const own = chains.get(target.name);
      const request = own
        ? responsesRequest({ ...question, history: [CHAIN_USER] }, { store: true, previous_response_id: own.last })
        : target.request({ ...question, history: [...history, CHAIN_USER] });
      const { micros } = await load(target, request, 8, scale);
      return { [own ? byId : resent]: micros };
    },
  };
}

/** Each round's measurements of a row, by target. */
interface RowResults {
  row: Row;
  rounds: Partial<Record<string, Measurement>>[];
}

export interface ShipsResults {
  targets: string[];
  rows: RowResults[];
  /** Resident memory of each target after all measurements, and its maximum, in MB. */
  memory: Record<string, { now: number; peak: number }>;
}

export interface ShipsOptions {
  scale: Scale;
  peers: readonly TargetKind[];
  /** The folder of another checkout: `serve` is then compared with that one alone. */
  before: string | undefined;
  /** Measures only the rows whose names contain one of these; all if there are none. */
  only: readonly string[];
  progress(text: string): void;
  /**
   * Measures, and repeats the measurement if other processes were busy. Gives undefined for a peer that does not
   * support it.
   */
  attempt<T>(kind: TargetKind, measure: () => Promise<T>): Promise<T | undefined>;
}

export async function measureShips(upstream: Upstream, options: ShipsOptions): Promise<ShipsResults> {
  const { scale, peers, before, only, progress, attempt } = options;
  const kinds = before === undefined ? comparedWithPeers(peers) : [...served(BEFORE, before), ...served(SERVE)];
  const targets: Target[] = [];
  for (const kind of kinds) {
    progress(`starting ${kind.name}`);
    targets.push(await startTarget(kind, upstream));
  }
  for (const target of targets) {
    progress(`warming ${target.name} up`);
    await attempt(target, () => warmUp(target, scale));
  }
  const chains = new Map<string, Chain>();
  for (const target of targets.filter((each) => isOurs(each) && isStored(each))) {
    progress(`a chain of ${CHAIN_LENGTH} turns: ${target.name}`);
    chains.set(target.name, await buildChain(target));
  }
  const isWanted = ({ name }: Row) => only.length === 0 || only.some((text) => name.includes(text));
  const results: RowResults[] = [...rows, chainRow(chains)].filter(isWanted).map((row) => ({ row, rounds: [] }));
  for (let round = 1; round <= scale.rounds; round += 1) {
    for (const { row, rounds } of results) {
      progress(`round ${round}: ${row.name}`);
      const measured: Partial<Record<string, Measurement>> = {};
      for (const target of targets) measured[target.name] = await attempt(target, () => row.measure(target, scale));
      rounds.push(measured);
    }
  }
  const memory = Object.fromEntries(targets.map(({ name, pid }) => [name, memoryMb(pid)]));
  for (const target of targets) await target.stop();
  return { targets: targets.map(({ name }) => name), rows: results, memory };
}

/** After this many requests V8 has compiled their code. */
const WARM_REQUESTS = 1_500;

/** Sends a new process requests until it has its final speed, also on a busy machine. */
async function warmUp(target: Target, { windowMs }: Scale): Promise<void> {
  for (const stream of [false, true]) {
    const request = target.request({ model: SHORT_MODEL, stream });
    for (let asked = 0; asked < WARM_REQUESTS; ) {
      asked += (await hammer(target.port, request, { clients: 8, durationMs: windowMs })).samples.length;
    }
  }
}

export function shipsReport(head: string, { targets, rows, memory }: ShipsResults): string {
  const lines: string[][] = [];
  for (const each of rows) {
    let title = `**${each.row.name}** `;
    for (const [metric, digits] of Object.entries(each.row.metrics)) {
      lines.push([title + metric, ...targets.map((target) => cellOf(each, target, metric, digits))]);
      title = "";
    }
  }
  const memoryOf = ({ now, peak } = { now: Number.NaN, peak: Number.NaN }) => `${number(now, 0)} (${number(peak, 0)})`;
  lines.push(["memory at the end, MB (highest)", ...targets.map((target) => memoryOf(memory[target]))]);
  return `${head}\n\n${table(["", ...targets], lines)}`;
}

/** The target that another one is compared with. */
function baselineOf(target: string, rounds: RowResults["rounds"]): string {
  return rounds.some((round) => round[BEFORE]) ? BEFORE + (target.endsWith(STORED) ? STORED : "") : TRANSLATES;
}

/** The median of the rounds, and the median of the rounds' ratios to the compared target. */
function cellOf({ row, rounds }: RowResults, target: string, metric: string, digits: number): string {
  const valueIn = (round: RowResults["rounds"][number], name: string, of: string) =>
    (round[name]?.[of] ?? Number.NaN) - (of === FIRST ? (round[DIRECT.name]?.[of] ?? 0) : 0);
  const values = rounds.map((round) => valueIn(round, target, metric)).filter(Number.isFinite);
  if (values.length === 0) return "–";
  const value = number(median(values), digits);
  const baseline = baselineOf(target, rounds);
  if (row.hasRatios === false || [DIRECT.name, baseline].includes(target)) return value;
  // Where the compared target has no such metric, it has the first one.
  const [first = metric] = Object.keys(row.metrics);
  const ratios = rounds.map((round) => {
    const of = round[baseline]?.[metric] === undefined ? first : metric;
    return valueIn(round, target, metric) / valueIn(round, baseline, of);
  });
  return `${value} (×${number(median(ratios), 2)})`;
}
