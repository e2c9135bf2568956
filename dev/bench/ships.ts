import { setTimeout as sleep } from "node:timers/promises";
import { buildChain, type Chain, isStored, STORED } from "./chains.ts";
import { startComparedWorker } from "./compared-worker.ts";
import { hammer } from "./load.ts";
import { memoryMb, treeMemoryMb } from "./processes.ts";
import { type BaselineOf, measureRows, type RowResults, type RowsOptions, rowLines, startTargets } from "./rows.ts";
import { startServe } from "./serve.ts";
import { BEFORE, CHAIN_LENGTH, MINIMUM_NAME, openStreams, SERVE, SHORT_MODEL, shipsRows } from "./ships-rows.ts";
import { number, table } from "./tables.ts";
import { DIRECT, responsesRequest, type Scale, type Target, type TargetKind, type Upstream } from "./targets.ts";

/**
 * `npm run bench`: the cost of a request to `serve` as it ships, beside a Worker that only translates and other
 * gateways, or beside the `serve` of another checkout. Every target is measured in every round.
 */

/** A target that does not store, and one that stores, a process each. */
function pairOf(name: string, start: TargetKind["start"]): TargetKind[] {
  return [false, true].map((store) => ({
    name: name + (store ? STORED : ""),
    start,
    request: (question) => responsesRequest(question, { store }),
  }));
}

/** `serve` of a checkout. */
export function served(name: string, checkout?: string): TargetKind[] {
  return pairOf(name, ({ port }, state) =>
    startServe(port, { ...(checkout === undefined ? {} : { checkout }), ...(state === undefined ? {} : { state }) }),
  );
}

export const TRANSLATES: TargetKind = {
  name: "translates",
  start: ({ port }) => startComparedWorker("translate", port),
  request: (question) => responsesRequest(question, { store: false }),
};

/** The least that a Worker does for an answer as `serve` gives it. */
const MINIMUM = pairOf(MINIMUM_NAME, ({ port }) => startComparedWorker("minimum", port));

/** Resident memory in MB: of all of the target's processes before the first request, of its own one at the end. */
interface Memory {
  idle: number;
  now: number;
  peak: number;
}

export interface ShipsResults {
  targets: string[];
  rows: RowResults[];
  memory: Record<string, Memory>;
}

/** Most garbage of a process's start is collected within this time. */
const REST_MS = 5_000;

export interface ShipsOptions extends RowsOptions {
  peers: readonly TargetKind[];
  /** The folder of another checkout: `serve` is then compared with that one alone. */
  before: string | undefined;
}

export async function measureShips(upstream: Upstream, options: ShipsOptions): Promise<ShipsResults> {
  const { peers, before, progress, attempt } = options;
  const kinds =
    before === undefined
      ? [DIRECT, TRANSLATES, ...MINIMUM, ...served(SERVE), ...peers]
      : [...served(BEFORE, before), ...served(SERVE)];
  const targets = await startTargets(kinds, upstream, options);
  progress("at rest");
  await sleep(REST_MS);
  const idle = new Map(targets.map(({ name, pid, root }) => [name, treeMemoryMb(root ?? pid)]));
  // Garbage of other rows would be reused.
  const first = await measureRows(targets, [openStreams], options);
  for (const target of targets) {
    progress(`warming ${target.name} up`);
    await attempt(target, () => warmUp(target, options.scale));
  }
  const chains = new Map<string, Chain>();
  for (const target of targets.filter(isStored)) {
    progress(`a chain of ${CHAIN_LENGTH} turns: ${target.name}`);
    const chain = await attempt(target, () => buildChain(target, CHAIN_LENGTH));
    if (chain?.ids.length === CHAIN_LENGTH) chains.set(target.name, chain);
  }
  const rows = [...first, ...(await measureRows(targets, shipsRows(chains), options))];
  const memory = Object.fromEntries(
    targets.map(({ name, pid }) => [name, { idle: idle.get(name) ?? 0, ...memoryMb(pid) }]),
  );
  for (const target of targets) await target.stop();
  return { targets: targets.map(({ name }) => name), rows, memory };
}

/** After this many requests V8 has compiled their code. A peer that is slow takes fewer. */
const WARM_REQUESTS = 1_500;
const WARM_UP_MS = 5_000;

/** Sends a new process requests until it has its final speed, also on a busy machine. */
export async function warmUp(target: Target, { windowMs }: Scale): Promise<void> {
  for (const stream of [false, true]) {
    const request = target.request({ model: SHORT_MODEL, stream });
    const begun = performance.now();
    for (let asked = 0; asked < WARM_REQUESTS && performance.now() - begun < WARM_UP_MS; ) {
      asked += (await hammer(target.port, request, { clients: 8, durationMs: windowMs })).samples.length;
    }
  }
}

/** The target that another one is compared with. */
const baselineOf: BaselineOf = (target, { rounds }) =>
  rounds.some((round) => round[BEFORE]) ? BEFORE + (target.endsWith(STORED) ? STORED : "") : TRANSLATES.name;

export function shipsReport(head: string, { targets, rows, memory }: ShipsResults): string {
  const memories = (name: string, cell: (memory: Memory) => string) => [
    name,
    ...targets.map((target) => (memory[target] ? cell(memory[target]) : "–")),
  ];
  const lines = [
    ...rowLines(targets, rows, baselineOf),
    memories("memory before the first request, all processes, MB", ({ idle }) => number(idle, 0)),
    memories("memory at the end, MB (highest)", ({ now, peak }) => `${number(now, 0)} (${number(peak, 0)})`),
  ];
  return `${head}\n\n${table(["", ...targets], lines)}`;
}
