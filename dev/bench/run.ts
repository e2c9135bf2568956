/**
 * `npm run bench`: the cost of this gateway on plain workerd, compared with the model server itself and a Worker that
 * only pipes bytes. docs/benchmarks.md has the method and the last results.
 *
 * npm run bench                       three rounds, about ten minutes; with five peers, twenty
 * npm run bench -- --quick            one short round
 * npm run bench -- --peers FILE       also other gateways, as peers.example.json lists some
 * npm run bench -- --json FILE        also the raw numbers
 * npm run bench -- --docs             also puts the tables into docs/benchmarks.md
 * npm run bench -- --durable          instead: background runs, resume, recovery, locks; under four minutes
 * npm run bench -- --sockets          instead: the same turns over a WebSocket and as SSE; half a minute
 * npm run bench -- --fleet            instead: a pool of model servers of which some are in trouble; a minute
 * npm run bench -- --growth           instead: what a turn costs as its conversation grows, and requests as more is
 * stored; memory, waits and files; fifteen minutes
 * npm run bench -- --growth --only TABLE       only its table `turns`, `stored` or `heavy`
 * npm run bench -- --workers          instead: `serve` with several workers; two minutes
 * npm run bench -- --ways             instead: `npm start`, `npm run serve` and `npm run dev` as they are; a minute
 * npm run bench -- --shipped          instead: a request's own cost with `serve` as it ships; five minutes without
 * peers
 * npm run bench -- --shipped --before FOLDER   also another Worker's bundle (`npm run build` of another commit), in the
 * same rounds
 * npm run bench -- --shipped --only TEXT       only the rows whose names have that text
 * npm run bench -- --minimum          instead: what the runtime takes for the parts of a request, beside requests of
 * `serve`; two minutes
 * npm run bench -- --profile          instead: where the CPU time goes, function by function
 */
import { readFileSync, writeFileSync } from "node:fs";
import { loadavg } from "node:os";
import { parseArgs } from "node:util";
import { workerdVersion } from "../../test/workerd/tools.ts";
import { CORES_MODEL, measureCores } from "./cores.ts";
import {
  countRuns,
  type DurableScale,
  measureFleet,
  measureHandOver,
  measurePacedCpu,
  measureRecovery,
  measureResume,
  measureUnaskedRecovery,
} from "./durable.ts";
import { durableReport } from "./durable-report.ts";
import { measureFleetTroubles } from "./fleet.ts";
import { GROWTH_MODEL, measureGrowth } from "./growth.ts";
import {
  HARMONY_MODELS,
  harmonyProfiles,
  measureColdStarts,
  measureHistories,
  measureModules,
  StreamWorkers,
} from "./harmony.ts";
import type { HarmonyResults } from "./harmony-report.ts";
import { HEAVY_MODELS, measureHeavy } from "./heavy.ts";
import { hammer } from "./load.ts";
import { measureMemory } from "./memory.ts";
import { measureMinimum } from "./minimum.ts";
import { readPeers } from "./peers.ts";
import { machineLine, OTHER_CORE, pinSelf, watchNoise } from "./processes.ts";
import { profile } from "./profile.ts";
import { profileTable, type Results, report } from "./report.ts";
import {
  CHAIN_LENGTH,
  Chain,
  countStoredTurns,
  type Measurement,
  measureLaterTurns,
  measureObjectMinimum,
  SCENARIO_MODELS,
  type Scale,
  scenarios,
} from "./scenarios.ts";
import { measureShipped, SHIPPED_MODELS, shippedReport } from "./shipped.ts";
import { measureSockets, SOCKET_MODELS, socketReport } from "./sockets.ts";
import { median } from "./statistics.ts";
import { measureStored, STORED_MODEL } from "./stored.ts";
import { percent } from "./tables.ts";
import {
  DIRECT,
  FLAGGED,
  responsesRequest,
  startTarget,
  startUpstream,
  type Target,
  type TargetKind,
  type Upstream,
  WORKERS,
} from "./targets.ts";
import { measureWays, OPEN_MODEL, WAYS_MODEL, waysReport } from "./ways.ts";
import { bundle, bundledModules, startWorker } from "./workers.ts";

const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    peers: { type: "string" },
    json: { type: "string" },
    docs: { type: "boolean", default: false },
    durable: { type: "boolean", default: false },
    sockets: { type: "boolean", default: false },
    fleet: { type: "boolean", default: false },
    ways: { type: "boolean", default: false },
    workers: { type: "boolean", default: false },
    growth: { type: "boolean", default: false },
    shipped: { type: "boolean", default: false },
    minimum: { type: "boolean", default: false },
    before: { type: "string" },
    only: { type: "string" },
    profile: { type: "boolean", default: false },
  },
});

const scale: Scale = options.quick
  ? { windowMs: 250, warmUpMs: 100, rounds: 1 }
  : { windowMs: 1000, warmUpMs: 300, rounds: 3 };

/**
 * A measurement is repeated if other processes used more of the machine than this: at most twice, and only while
 * repeating takes at most a minute of the run.
 */
const NOISY = 0.1;
let repeatBudgetMs = options.quick ? 0 : 60_000;
const noises: number[] = [];
let repeated = 0;

process.on("SIGINT", () => process.exit(130));
process.on("SIGTERM", () => process.exit(143));

if (options.fleet) {
  console.log(await measureFleetTroubles(progress));
  process.exit(0);
}
if (options.ways) {
  // The same limit for measurements of starts, which are mostly CPU time.
  const load = `load average ${(loadavg()[0] ?? 0).toFixed(1)} before it`;
  const upstream = await startUpstream(OTHER_CORE, [WAYS_MODEL, OPEN_MODEL]);
  const results = await measureWays(upstream, 5 * scale.windowMs, progress);
  await upstream.stop();
  publish(results, waysReport(`${machineLine()}, ${load}`, results), "--ways --docs", "self-hosting.md");
  process.exit(0);
}
progress("bundling");
bundle();
if (options.growth) {
  const upstream = await startUpstream(OTHER_CORE, [GROWTH_MODEL, STORED_MODEL, ...HEAVY_MODELS]);
  for (const [name, measure] of Object.entries({ turns: measureGrowth, stored: measureStored, heavy: measureHeavy })) {
    if (options.only !== undefined && options.only !== name) continue;
    const measured = await measure(upstream, progress);
    publish(measured, `${machineLine()}\n\n${measured}`, `--growth --only ${name} --docs`);
  }
  await upstream.stop();
  process.exit(0);
}
if (options.workers) {
  const upstream = await startUpstream(OTHER_CORE, [CORES_MODEL]);
  console.log(await measureCores(upstream, { windowMs: 3 * scale.windowMs, rounds: 2 * scale.rounds + 1 }, progress));
  await upstream.stop();
  process.exit(0);
}
const pinned = pinSelf();
const versions = `workerd ${workerdVersion}${pinned ? ", gateway pinned to one core, model server and client to the other" : ""}`;
const upstream = await startUpstream(OTHER_CORE, [
  "simulator",
  ...SCENARIO_MODELS,
  ...HARMONY_MODELS,
  ...SOCKET_MODELS,
  ...SHIPPED_MODELS,
]);
if (options.profile) await printProfiles(upstream);
else if (options.durable) await runDurableBenchmark(upstream);
else if (options.sockets) await runSocketBenchmark(upstream);
else if (options.shipped) await runShippedBenchmark(upstream);
else if (options.minimum) console.log(`${machineLine()}\n\n${await measureMinimum(upstream, scale, progress)}`);
else await runBenchmark(upstream);
await upstream.stop();

async function runBenchmark(upstream: Upstream): Promise<void> {
  const kinds = [DIRECT, ...WORKERS, ...(options.peers === undefined ? [] : readPeers(options.peers))];
  const targets: Target[] = [];
  for (const kind of kinds) {
    progress(`starting ${kind.name}`);
    targets.push(await startTarget(kind, upstream));
  }
  const measured = scenarios.map((scenario) => ({ scenario, rounds: [] as Partial<Record<string, Measurement>>[] }));
  for (let round = 1; round <= scale.rounds; round += 1) {
    for (const { scenario, rounds } of measured) {
      progress(`round ${round}: ${scenario.name}`);
      const results: Partial<Record<string, Measurement>> = {};
      for (const target of targets) {
        results[target.name] = await attempt(target, () => quietly(() => scenario.measure(target, scale)));
      }
      rounds.push(results);
    }
  }
  progress(`a chain of ${CHAIN_LENGTH} turns`);
  const chainWorker = await startWorker("ours", upstream.port);
  const pipe = targets.find(({ name }) => name === "pipe");
  if (!pipe) throw new Error("no pipe");
  const chain = await Chain.build(chainWorker, pipe, upstream);
  const chainRounds: Results["chain"] = [];
  const laterTurns: number[] = [];
  for (let round = 1; round <= scale.rounds; round += 1) {
    const second = await quietly(() => chain.measure(2, scale));
    const last = await quietly(() => chain.measure(CHAIN_LENGTH, scale));
    chainRounds.push({ second, last });
    laterTurns.push(await quietly(() => measureLaterTurns(chainWorker, scale, 32)));
  }
  await chainWorker.stop();
  for (const target of targets) await target.stop();
  const memory: Results["memory"] = {};
  for (const kind of [...kinds, ...FLAGGED]) {
    if (kind === DIRECT) continue;
    progress(`memory: ${kind.name}`);
    const target = await startTarget(kind, upstream);
    memory[kind.name] = await attempt(kind, () => measureMemory(target));
    await target.stop();
  }
  progress("rows and object calls");
  const stored = await countStoredTurns(upstream);
  const objectMinimum = await measureObjectMinimum(scale);
  const harmony = await measureHarmony(upstream);
  const results: Results = {
    machine: machineLine(),
    versions,
    noise: { median: median(noises), worst: Math.max(...noises), repeated },
    targets: kinds.map(({ name, peer }) => ({ name, ...(peer && { peer }) })),
    scenarios: measured,
    memory,
    stored,
    objectMinimum,
    chain: chainRounds,
    laterTurns,
    harmony,
  };
  publish(results, report(results), "--docs");
}

/** Measures a target. Gives undefined for a peer that does not support it. */
async function attempt<T>({ name, peer }: TargetKind, measure: () => Promise<T>): Promise<T | undefined> {
  try {
    return await measure();
  } catch (error) {
    if (peer === undefined) throw error;
    progress("");
    console.error(`${name}: ${String(error)}`);
    return undefined;
  }
}

async function measureHarmony(upstream: Upstream): Promise<HarmonyResults> {
  const workers = await StreamWorkers.start(upstream);
  const streams: HarmonyResults["streams"] = [];
  for (let round = 1; round <= scale.rounds; round += 1) {
    progress(`round ${round}: gpt-oss`);
    streams.push(await workers.measure(scale, quietly));
  }
  await workers.stop();
  const histories: HarmonyResults["histories"] = [];
  for (let round = 1; round <= scale.rounds; round += 1) {
    progress(`round ${round}: long histories`);
    histories.push(await quietly(() => measureHistories(upstream, scale)));
  }
  progress("cold starts");
  const coldStarts = await quietly(() => measureColdStarts(upstream, scale));
  return { streams, histories, modules: measureModules(), coldStarts, bundle: bundledModules() };
}

async function runDurableBenchmark(upstream: Upstream): Promise<void> {
  const scale: DurableScale = options.quick
    ? { fleet: 100, resumes: 60, kills: 3, handOvers: 20, streams: 8, tokens: 100 }
    : { fleet: 1_000, resumes: 600, kills: 12, handOvers: 100, streams: 32, tokens: 500 };
  const noise: Record<string, number> = {};
  /** Measures one part. Repeats a short one at most twice if other processes were busy. */
  const part = async <T>(name: string, measure: () => Promise<T>): Promise<T> => {
    progress(name);
    for (let attempt = 1; ; attempt += 1) {
      const start = performance.now();
      const stopWatching = watchNoise();
      const measured = await measure();
      const share = stopWatching();
      noise[name] = share;
      const isShort = performance.now() - start < 15_000;
      if (share <= NOISY || !isShort || attempt === 3 || options.quick) return measured;
    }
  };
  const handOver = await part("hand-over", () => measureHandOver(upstream, scale));
  const resume = await part("resume", () => measureResume(upstream, scale));
  const recovery = await part("recovery", () => measureRecovery(upstream, scale));
  const fleets = await part("many runs", async () => [
    await measureFleet(upstream, scale.fleet, 100),
    await measureFleet(upstream, scale.fleet, 300),
  ]);
  const cpu = await part("CPU", () => measurePacedCpu(upstream, scale));
  // The two run at the same time, because both mostly wait, and neither measures short times.
  const [costs, unasked] = await part("rows and alarms", () =>
    Promise.all([countRuns(upstream), measureUnaskedRecovery(upstream, scale)]),
  );
  const machine = machineLine();
  const results = {
    machine,
    versions,
    noise,
    fleets,
    resume,
    costs,
    cpu,
    recovery: { ...recovery, unasked },
    handOver,
  };
  publish(results, durableReport(results), "--durable --docs");
}

async function runSocketBenchmark(upstream: Upstream): Promise<void> {
  progress("sockets");
  const sockets = await quietly(() => measureSockets(upstream, scale));
  publish(sockets, socketReport(`${machineLine()} · ${versions}`, sockets), "--sockets --docs");
}

async function runShippedBenchmark(upstream: Upstream): Promise<void> {
  const results = await measureShipped(upstream, {
    ...{ scale, progress, before: options.before, only: options.only },
    peers: options.peers === undefined ? [] : readPeers(options.peers),
    attempt: (kind, measure) => attempt(kind, () => quietly(measure)),
  });
  const noise = `Other work took ${percent(median(noises))} of the machine (worst ${percent(Math.max(...noises))}).`;
  publish(results, shippedReport(`${machineLine()} · ${versions}\n\n${noise}`, results), "--shipped --docs");
}

/**
 * Prints the results, and writes them if the options say so. `document`: the page in docs/ whose table `flags` writes.
 */
function publish(results: unknown, tables: string, flags: string, document = "benchmarks.md"): void {
  progress("");
  console.log(tables);
  if (options.docs) writeDocument(tables, flags, document);
  if (options.json) writeFileSync(options.json, `${JSON.stringify(results, null, 2)}\n`);
}

/** Writes the tables into a document, between the marks for `flags`. */
function writeDocument(tables: string, flags: string, name: string): void {
  const document = new URL(`../../docs/${name}`, import.meta.url);
  const text = readFileSync(document, "utf8");
  const mark = `<!-- results: npm run bench -- ${flags} -->`;
  const begin = text.indexOf(mark);
  const end = text.indexOf("<!-- end of results -->", begin);
  if (begin === -1 || end === -1) throw new Error(`docs/${name} has no place for the results`);
  writeFileSync(document, `${text.slice(0, begin)}${mark}\n\n${tables}\n\n${text.slice(end)}`);
}

/** Measures, and repeats the measurement if other processes were busy. The attempt with the least other work counts. */
async function quietly<T>(measure: () => Promise<T>): Promise<T> {
  let best: { value: T; noise: number } | undefined;
  for (let attempt = 0; attempt < 3 && (!best || repeatBudgetMs > 0); attempt += 1) {
    const start = performance.now();
    const stopWatching = watchNoise();
    const value = await measure();
    const noise = stopWatching();
    if (best) {
      repeated += 1;
      repeatBudgetMs -= performance.now() - start;
    }
    if (!best || noise < best.noise) best = { value, noise };
    if (best.noise <= NOISY) break;
  }
  if (!best) throw new Error("nothing was measured");
  noises.push(best.noise);
  return best.value;
}

async function printProfiles(upstream: Upstream): Promise<void> {
  const worker = await startWorker("ours", upstream.port, { inspect: true });
  const asked = (settings: string, stream: boolean, store: boolean) =>
    responsesRequest({ model: `simulator?${settings}`, stream }, { store });
  const chain = await Chain.build(worker, worker, upstream);
  for (const { name, request, clients } of [
    { name: "Flood, 16 per HTTP chunk", request: asked("words=500&chunk=16", true, false), clients: 8 },
    { name: "Flood, an HTTP chunk each", request: asked("words=500", true, false), clients: 8 },
    { name: "Short streams", request: asked("words=20&chunk=16", true, false), clients: 8 },
    { name: "Short streams, stored", request: asked("words=20&chunk=16", true, true), clients: 8 },
    { name: "JSON answers", request: asked("words=20", false, false), clients: 32 },
    { name: "Turn 2 by id", request: chain.requests(2)["by id"], clients: 8 },
    { name: `Turn ${CHAIN_LENGTH} by id`, request: chain.requests(CHAIN_LENGTH)["by id"], clients: 8 },
    { name: `Turn ${CHAIN_LENGTH}, history resent`, request: chain.requests(CHAIN_LENGTH).resent, clients: 8 },
    ...harmonyProfiles(),
  ]) {
    const load = (durationMs: number) => hammer(worker.port, request, { clients, durationMs });
    await load(scale.warmUpMs);
    let requests = 0;
    const { busyMs, lines } = await profile(worker.inspectorPort ?? 0, async () => {
      requests = (await load(2 * scale.windowMs)).samples.length;
    });
    progress("");
    console.log(`${profileTable(`${name}: ${requests} requests, ${busyMs.toFixed(0)} ms busy`, lines)}\n`);
  }
  await worker.stop();
}

function progress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}
