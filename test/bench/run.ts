/**
 * `npm run bench`: what this gateway costs on plain workerd, beside the model server itself and a Worker that only
 * pipes bytes. docs/benchmarks.md has the method and the last results.
 *
 *     npm run bench                       three rounds, under five minutes
 *     npm run bench -- --quick            one short round
 *     npm run bench -- --json FILE        also the raw numbers
 *     npm run bench -- --docs             also puts the tables into docs/benchmarks.md
 *     npm run bench -- --profile          instead: where the CPU time goes, function by function
 */
import { readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { hammer } from "./load.ts";
import { machineLine, OTHER_CORE, pinSelf, watchNoise } from "./processes.ts";
import { profile } from "./profile.ts";
import { profileTable, type Results, report } from "./report.ts";
import {
  CHAIN_LENGTH,
  Chain,
  countStoredTurns,
  type Measurement,
  measureMemory,
  measureObjectFloor,
  type Scale,
  scenarios,
} from "./scenarios.ts";
import { median } from "./statistics.ts";
import { responsesRequest, startFresh, startUpstream, TARGETS, TargetSet, type Upstream } from "./targets.ts";
import { bundle, startWorker, workerdVersion } from "./workers.ts";

const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    json: { type: "string" },
    docs: { type: "boolean", default: false },
    profile: { type: "boolean", default: false },
  },
});

const scale: Scale = options.quick
  ? { windowMs: 250, warmUpMs: 100, rounds: 1 }
  : { windowMs: 1000, warmUpMs: 300, rounds: 3 };

/**
 * A measurement during which others took more of the machine than this is repeated, at most twice, and as long as
 * repeating takes no more than a minute of the run.
 */
const NOISY = 0.1;
let repeatBudgetMs = options.quick ? 0 : 60_000;
const noises: number[] = [];
let repeated = 0;

process.on("SIGINT", () => process.exit(130));
process.on("SIGTERM", () => process.exit(143));

progress("bundling");
bundle();
const pinned = pinSelf();
const upstream = await startUpstream(OTHER_CORE);
if (options.profile) await printProfiles(upstream);
else await runBenchmark(upstream);
await upstream.stop();

async function runBenchmark(upstream: Upstream): Promise<void> {
  const set = await TargetSet.start(upstream);
  const measured = scenarios.map((scenario) => ({ scenario, rounds: [] as Partial<Record<string, Measurement>>[] }));
  for (let round = 1; round <= scale.rounds; round += 1) {
    for (const { scenario, rounds } of measured) {
      progress(`round ${round}: ${scenario.name}`);
      const results: Partial<Record<string, Measurement>> = {};
      for (const target of set.targets) results[target.name] = await quietly(() => scenario.measure(target, scale));
      rounds.push(results);
    }
  }
  progress(`a chain of ${CHAIN_LENGTH} turns`);
  const chainWorker = await startWorker("ours", upstream.port);
  const chain = await Chain.build(chainWorker, set.pipe, upstream);
  const chainRounds: Results["chain"] = [];
  for (let round = 1; round <= scale.rounds; round += 1) {
    const second = await quietly(() => chain.measure(2, scale));
    const last = await quietly(() => chain.measure(CHAIN_LENGTH, scale));
    chainRounds.push({ second, last });
  }
  await chainWorker.stop();
  await set.stop();
  progress("memory");
  const memory: Results["memory"] = {};
  for (const name of TARGETS) {
    if (name === "direct") continue;
    const { target, stop } = await startFresh(name, upstream.port);
    memory[name] = await measureMemory(target);
    await stop();
  }
  progress("rows and object calls");
  const stored = await countStoredTurns(upstream);
  const objectFloor = await measureObjectFloor(scale);
  const results: Results = {
    machine: machineLine(),
    versions: `workerd ${workerdVersion}${pinned ? ", gateway pinned to one core, model server and client to the other" : ""}`,
    noise: { median: median(noises), worst: Math.max(...noises), repeated },
    scenarios: measured,
    memory,
    stored,
    objectFloor,
    chain: chainRounds,
  };
  progress("");
  const tables = report(results);
  console.log(tables);
  if (options.docs) writeDocument(tables);
  if (options.json) writeFileSync(options.json, `${JSON.stringify(results, null, 2)}\n`);
}

const DOCUMENT = new URL("../../docs/benchmarks.md", import.meta.url);
const BEGIN = "<!-- results: npm run bench -- --docs -->";
const END = "<!-- end of results -->";

function writeDocument(tables: string): void {
  const text = readFileSync(DOCUMENT, "utf8");
  const [begin, end] = [text.indexOf(BEGIN), text.indexOf(END)];
  if (begin === -1 || end < begin) throw new Error("docs/benchmarks.md has no place for the results");
  writeFileSync(DOCUMENT, `${text.slice(0, begin)}${BEGIN}\n\n${tables}\n\n${text.slice(end)}`);
}

/** Measures; again when others were busy meanwhile. The quietest attempt counts. */
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
