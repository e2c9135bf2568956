import { buildChain, CHAIN_MODEL, type Chain, isStored, STORED } from "../chains.ts";
import { TWO_CORES } from "../processes.ts";
import {
  combinedTable,
  isWanted,
  measureRows,
  medianOf,
  type RowResults,
  type RowsOptions,
  startTargets,
} from "../rows.ts";
import { startServe } from "../serve.ts";
import { served, TRANSLATES, warmUp } from "../ships.ts";
import { SERVE, SHORT_MODEL } from "../ships-rows.ts";
import { number } from "../tables.ts";
import { DIRECT, type Row, responsesRequest, type Target, type TargetKind, type Upstream } from "../targets.ts";
import { asBackground, killRows, REPEATED } from "./kills.ts";
import { LONG_MODEL, longPrompts, TURNS, withKeys } from "./long-prompts.ts";
import { drawPicture } from "./picture.ts";
import { HELD, SUSTAINED_MODEL, sustained } from "./sustained.ts";
import { DEPTHS, FIRST_DELTA, turnRows } from "./turns.ts";

/** `npm run bench -- --published`: the tables that others publish of their gateways, and those that nobody does. */

export const PUBLISHED_MODELS: readonly string[] = [LONG_MODEL, SUSTAINED_MODEL, CHAIN_MODEL, SHORT_MODEL];

/** One table, with targets of its own, and a picture. */
interface Published {
  name: string;
  kinds(peers: Peers): TargetKind[];
  /** True if the rows start the targets themselves. */
  isCold?: boolean;
  /** The rounds, at most. */
  rounds: number;
  rows(upstream: Upstream, targets: readonly Target[], options: RowsOptions): Promise<readonly Row[]>;
  picture: { title: string; note: string; row: string; metric: string; digits: number };
}

const [serve, stored] = served(SERVE) as [TargetKind, TargetKind];
type Peers = readonly TargetKind[];
const stores = (peers: Peers) => peers.filter(isStored);
/** A peer that is listed not stored and stored is measured as one of them. */
const notStored = (peers: Peers) => peers.filter(({ name }) => !peers.some((other) => other.name + STORED === name));
const storedFirst = (peers: Peers) => peers.filter(({ name }) => !peers.some((other) => other.name === name + STORED));

/** `serve` with two workers, on two cores. */
const twoWorkers: TargetKind = {
  ...stored,
  name: "serve, stored, two cores",
  start: ({ port }) =>
    startServe(port, { variables: { WORKERS: "2" }, ...(TWO_CORES === undefined ? {} : { cores: TWO_CORES }) }),
  request: (question) => responsesRequest(question, { store: true }),
};

const PUBLISHED: readonly Published[] = [
  {
    name: "long prompts",
    kinds: (peers) => [DIRECT, TRANSLATES, withKeys(), ...notStored(peers)],
    rounds: 1,
    rows: async () => [longPrompts],
    picture: {
      ...{ title: "Prompts of 50 to 100 k tokens", note: "turns per core second: more is better" },
      ...{ row: longPrompts.name, metric: TURNS, digits: 0 },
    },
  },
  {
    name: "sustained streams",
    kinds: (peers) => [
      DIRECT,
      TRANSLATES,
      serve,
      stored,
      ...(TWO_CORES === undefined ? [] : [twoWorkers]),
      ...storedFirst(peers),
    ],
    rounds: 1,
    rows: async () => [sustained],
    picture: {
      ...{ title: "Streams without a gap above 200 ms", note: "at the same time, one core: more is better" },
      ...{ row: sustained.name, metric: HELD, digits: 0 },
    },
  },
  {
    name: "stateful turns",
    kinds: (peers) => [stored, ...stores(peers)],
    rounds: 2,
    async rows(upstream, targets, { progress, attempt }) {
      const chains = new Map<string, Chain>();
      const longest = DEPTHS.at(-1) ?? 0;
      for (const target of targets) {
        progress(`${longest} turns: ${target.name}`);
        const chain = await attempt(target, () => buildChain(target, longest - 1, 45_000));
        if (chain) chains.set(target.name, chain);
      }
      return turnRows(upstream, chains);
    },
    picture: {
      ...{ title: "Turn 200 by id, stored", note: "ms to the first delta, one client: less is better" },
      ...{ row: "Turn 200 by id", metric: FIRST_DELTA, digits: 1 },
    },
  },
  {
    name: "kills",
    kinds: (peers) => [stored, asBackground(serve), ...storedFirst(peers)],
    isCold: true,
    rounds: 1,
    rows: async () => killRows,
    picture: {
      ...{ title: "kill -9 of the gateway", note: "tokens repeated per 1,000 open answers: less is better" },
      ...{ row: killRows[0]?.name ?? "", metric: REPEATED, digits: 0 },
    },
  },
];

export interface PublishedResults {
  name: string;
  targets: string[];
  rows: RowResults[];
  report: string;
  /** An SVG. */
  picture: string;
}

/** The names of the tables. */
export const publishedTables = (only: readonly string[]): string[] =>
  PUBLISHED.map(({ name }) => name).filter((name) => isWanted(name, only));

/** A target that is not started. */
const asCold = (kind: TargetKind): Target => ({ ...kind, port: 0, pid: 0, stop: async () => {} });

/** Measures one table. `peers` are other gateways. */
export async function measurePublished(
  upstream: Upstream,
  wanted: string,
  peers: readonly TargetKind[],
  options: RowsOptions,
): Promise<PublishedResults> {
  const table = PUBLISHED.find(({ name }) => name === wanted);
  if (table === undefined) throw new Error(`no table ${wanted}`);
  const kinds = table.kinds(peers);
  const targets = table.isCold === true ? kinds.map(asCold) : await startTargets(kinds, upstream, options);
  const scale = { ...options.scale, rounds: Math.min(options.scale.rounds, table.rounds) };
  for (const target of targets.filter(({ pid, name }) => pid !== 0 && name !== DIRECT.name)) {
    options.progress(`warming ${target.name} up`);
    await options.attempt(target, () => warmUp(target, scale));
  }
  const all = { ...options, scale, only: [] };
  const rows = await measureRows(targets, await table.rows(upstream, targets, all), all);
  for (const target of targets) await target.stop();
  const names = targets.map(({ name }) => name);
  const { row, metric, digits, ...drawn } = table.picture;
  const shown = rows.find((each) => each.row.name === row);
  const bars = names.flatMap((name) => {
    const value = shown ? medianOf(shown, name, metric) : Number.NaN;
    return Number.isFinite(value) && name !== DIRECT.name ? [{ name, value, text: number(value, digits) }] : [];
  });
  return {
    name: wanted,
    targets: names,
    rows,
    report: combinedTable(names, rows),
    picture: drawPicture({ ...drawn, bars }),
  };
}
