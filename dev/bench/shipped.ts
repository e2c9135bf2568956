import { V8_FLAGS } from "../../cli/serve/workerd.ts";
import { COMING_MODEL, coming } from "./coming.ts";
import { hammer, type Request } from "./load.ts";
import { cpuSeconds, memoryMb } from "./processes.ts";
import {
  CHAIN_LENGTH,
  CHAIN_MODEL,
  Chain,
  firstTimes,
  load,
  type Measurement,
  measureLaterTurns,
  type Scale,
  SHORT_MODEL,
} from "./scenarios.ts";
import { startServe } from "./serve.ts";
import { median } from "./statistics.ts";
import { number, table } from "./tables.ts";
import {
  chatRequest,
  DIRECT,
  type Message,
  responsesRequest,
  startTarget,
  type Target,
  type TargetKind,
  type Upstream,
} from "./targets.ts";
import { bundleFolder, startWorker } from "./workers.ts";

/**
 * `npm run bench -- --shipped`: the cost of a request with `serve` as it ships. It is compared with Workers that do
 * less, under the same flags of V8, and with other gateways. The bundle of another checkout can be measured in the same
 * rounds.
 */

const unstored: TargetKind["request"] = (question) => responsesRequest(question, { store: false });
const stored: TargetKind["request"] = (question) => responsesRequest(question, { store: true });

const FLOOD_TOKENS = 500;
const FLOOD_MODEL = `simulator?words=${FLOOD_TOKENS}&chunk=1`;

/** Our targets, of this checkout and of another one; and the suffix of the names of targets that store. */
const [SERVE, BEFORE] = ["serve", "before"];
const OURS = [SERVE, BEFORE];
const STORED = ", stored";

/** The Workers that every target is compared with, one for each transport of streams. */
const [BASELINE, SOCKET_BASELINE] = ["translates", "translates, sockets"];

function baselineOf(name: string, variables: Record<string, string>): TargetKind {
  const start = ({ port }: Upstream) => startWorker("translate", port, { flags: V8_FLAGS, variables });
  return { name, start, request: unstored };
}

function served(name: string, bundle: string): TargetKind[] {
  const start = ({ port }: Upstream) => startServe({ bundle, upstreamPort: port });
  return [
    { name, start, request: unstored },
    { name: `${name}${STORED}`, start, request: stored },
  ];
}

/** `before` is the folder of another bundle; undefined without. */
function kindsOf(peers: readonly TargetKind[], before: string | undefined): TargetKind[] {
  return [
    DIRECT,
    { name: "pipe", start: ({ port }) => startWorker("pipe", port, { flags: V8_FLAGS }), request: chatRequest },
    baselineOf(BASELINE, {}),
    baselineOf(SOCKET_BASELINE, { SOCKETS: "true" }),
    ...served(SERVE, bundleFolder),
    ...(before === undefined ? [] : served(BEFORE, before)),
    ...peers,
  ];
}

/** A row of the table, with a measurement for each target that supports it. */
interface Row {
  name: string;
  /**
   * The name of each metric, with its number of decimals. A metric that the compared Worker does not have is compared
   * with that Worker's first metric.
   */
  metrics: Record<string, number>;
  /**
   * The name of the Worker that ratios refer to. For a metric whose name says so, both values are costs beyond direct
   * requests.
   */
  baseline?: string;
  measure(target: Target, scale: Scale): Promise<Measurement>;
}

const CPU = "CPU µs";
const LATER = "CPU µs, a later turn";
const FIRST = "first delta ms, added";

const rows: readonly Row[] = [
  ...[1, 32].map(
    (clients): Row => ({
      name: `JSON of 20 tokens, ${clients === 1 ? "a client" : `${clients} clients`}`,
      metrics: { [CPU]: 0, [LATER]: 0 },
      baseline: BASELINE,
      async measure(target, scale) {
        const { samples, cpuMicros } = await load(target, { model: SHORT_MODEL, stream: false }, clients, scale);
        const later = isStored(target) && { [LATER]: await measureLaterTurns(target, scale, clients) };
        return { [CPU]: cpuMicros / samples.length, ...later };
      },
    }),
  ),
  {
    name: "A stream of 20 tokens, a client",
    metrics: { [FIRST]: 2, [CPU]: 0 },
    baseline: SOCKET_BASELINE,
    async measure(target, scale) {
      const { samples, cpuMicros } = await load(target, { model: SHORT_MODEL, stream: true }, 1, scale);
      return { [FIRST]: firstTimes(samples)["first delta p50 ms"], [CPU]: cpuMicros / samples.length };
    },
  },
  {
    name: "A token, an HTTP chunk each, 8 clients",
    metrics: { [CPU]: 1 },
    baseline: SOCKET_BASELINE,
    async measure(target, scale) {
      const { samples, cpuMicros } = await load(target, { model: FLOOD_MODEL, stream: true }, 8, scale);
      return { [CPU]: cpuMicros / (samples.length * FLOOD_TOKENS) };
    },
  },
  coming,
];

/** Tells whether a target is one of ours that stores its answers, so that its turns can be continued. */
function isStored({ name }: TargetKind): boolean {
  return OURS.includes(name.replace(STORED, "")) && name.endsWith(STORED);
}

/**
 * A row that repeats the last turn of a conversation: with the history in the body, and by id for targets that store
 * it.
 */
function chainRow(chains: ReadonlyMap<string, Chain>, history: readonly Message[]): Row {
  const [resent, byId, storedById] = ["CPU µs, resent", "CPU µs, by id", "CPU µs, by id, stored"];
  return {
    name: `Turn ${CHAIN_LENGTH}, a stream of 20 tokens, 8 clients`,
    metrics: { [resent]: 0, [byId]: 0, [storedById]: 0 },
    baseline: SOCKET_BASELINE,
    async measure(target, { warmUpMs, windowMs }) {
      const cpu = async (request: Request) => {
        await hammer(target.port, request, { clients: 8, durationMs: warmUpMs });
        const before = cpuSeconds(target.pid);
        const { samples } = await hammer(target.port, request, { clients: 8, durationMs: windowMs });
        return ((cpuSeconds(target.pid) - before) * 1e6) / samples.length;
      };
      const measured: Measurement = {};
      if (!target.name.endsWith(STORED)) {
        measured[resent] = await cpu(target.request({ model: CHAIN_MODEL, stream: true, history }));
      }
      const chain = chains.get(target.name)?.requests(CHAIN_LENGTH);
      if (chain) {
        measured[byId] = await cpu(chain["by id"]);
        measured[storedById] = await cpu(chain["by id, stored"]);
      }
      return measured;
    },
  };
}

/** Each round's measurements of a row, by target. */
interface RowResults {
  row: Row;
  rounds: Partial<Record<string, Measurement>>[];
}

export interface ShippedResults {
  targets: string[];
  rows: RowResults[];
  /** Resident memory of each target after all measurements, and its maximum, in MB. */
  memory: Record<string, { now: number; peak: number }>;
}

export interface ShippedOptions {
  scale: Scale;
  peers: readonly TargetKind[];
  before: string | undefined;
  /** Measures only the rows whose names contain this; undefined: all. */
  only: string | undefined;
  progress(text: string): void;
  /**
   * Measures, and repeats the measurement if other processes were busy. Gives undefined for a peer that does not
   * support it.
   */
  attempt<T>(kind: TargetKind, measure: () => Promise<T>): Promise<T | undefined>;
}

export async function measureShipped(upstream: Upstream, options: ShippedOptions): Promise<ShippedResults> {
  const { scale, peers, before, only = "", progress, attempt } = options;
  const targets: Target[] = [];
  for (const kind of kindsOf(peers, before)) {
    progress(`starting ${kind.name}`);
    targets.push(await startTarget(kind, upstream));
  }
  for (const target of targets) {
    progress(`warming ${target.name} up`);
    await attempt(target, () => warmUp(target, scale));
  }
  const chains = new Map<string, Chain>();
  let history: readonly Message[] = [];
  for (const target of targets.filter(({ name }) => OURS.includes(name))) {
    progress(`a chain of ${CHAIN_LENGTH} turns`);
    const chain = await Chain.build(target, target, upstream);
    chains.set(target.name, chain);
    history = chain.history;
  }
  const wanted = [...rows, chainRow(chains, history)].filter(({ name }) => name.includes(only));
  const results: RowResults[] = wanted.map((row) => ({ row, rounds: [] }));
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

export function shippedReport(machine: string, results: ShippedResults): string {
  const { targets, memory } = results;
  const lines: string[][] = [];
  for (const each of results.rows) {
    let title = `**${each.row.name}** `;
    for (const [metric, digits] of Object.entries(each.row.metrics)) {
      lines.push([title + metric, ...targets.map((target) => cellOf(each, target, metric, digits))]);
      title = "";
    }
  }
  lines.push(["memory at the end, MB (highest)", ...targets.map((target) => memoryCell(memory[target]))]);
  return `${machine}\n\n${table(["", ...targets], lines)}`;
}

function memoryCell(memory: { now: number; peak: number } | undefined): string {
  return memory === undefined ? "–" : `${number(memory.now, 0)} (${number(memory.peak, 0)})`;
}

/** The median of the rounds, and the median of the rounds' ratios to the compared Worker. */
function cellOf({ row, rounds }: RowResults, target: string, metric: string, digits: number): string {
  const [first = metric] = Object.keys(row.metrics);
  const isAdded = metric.endsWith(", added");
  const valueIn = (round: RowResults["rounds"][number], name: string, of: string) =>
    (round[name]?.[of] ?? Number.NaN) - (isAdded ? (round[DIRECT.name]?.[of] ?? Number.NaN) : 0);
  const values = rounds.map((round) => valueIn(round, target, metric)).filter(Number.isFinite);
  if (values.length === 0) return "–";
  const value = number(median(values), digits);
  const { baseline } = row;
  if (baseline === undefined || target === DIRECT.name) return value;
  const ratios = rounds.map((round) => {
    const of = round[baseline]?.[metric] === undefined ? first : metric;
    return valueIn(round, target, metric) / valueIn(round, baseline, of);
  });
  return `${value} (×${number(median(ratios), 2)})`;
}

export const SHIPPED_MODELS: readonly string[] = [SHORT_MODEL, FLOOD_MODEL, COMING_MODEL, CHAIN_MODEL];
