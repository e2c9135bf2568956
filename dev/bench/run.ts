/**
 * `npm run bench`: the cost of `serve` as it ships. docs/benchmarks.md has the method and the last results.
 *
 * npm run bench                          beside the model server itself and Workers that do less; twelve minutes
 * npm run bench -- --peers FILE          also other gateways, as peers.example.json lists some
 * npm run bench -- --before FOLDER       beside the `serve` of another checkout, and nothing else
 * npm run bench -- --only TEXT           only the rows whose names have that text; it can be given several times
 * npm run bench -- --published           instead: tables to compare with those that others publish; takes --peers, and
 *                                        --only with a table's name; fifteen minutes
 * npm run bench -- --durable             instead: background runs, resume, recovery, locks; three minutes
 * npm run bench -- --growth              instead: what a turn costs as its conversation grows, and requests as more is
 * stored; memory, waits and files; fifteen minutes
 * npm run bench -- --growth --only TABLE only its table `turns`, `stored` or `heavy`
 * npm run bench -- --neighbours          instead: a tenant's turns beside another tenant's load; three minutes
 * npm run bench -- --fair                instead: tenants at saturated model servers; two minutes
 *
 * Each also takes: --quick, one short round; --json FILE, also the raw numbers; --docs, also puts the tables and
 * pictures into docs.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { workerdVersion } from "../../test/workerd/tools.ts";
import { measureDurable } from "./durable.ts";
import { measureFair } from "./fair.ts";
import { goalsReport } from "./goals.ts";
import { GROWTH_MODEL, measureGrowth } from "./growth.ts";
import { HEAVY_MODELS, measureHeavy } from "./heavy.ts";
import { measureNeighbours } from "./neighbours.ts";
import { readPeers } from "./peers.ts";
import { machineLine, OTHER_CORE, pinSelf, watchNoise } from "./processes.ts";
import { measurePublished, PUBLISHED_MODELS, publishedTables } from "./published/published.ts";
import { measureShips, shipsReport } from "./ships.ts";
import { SHIPS_MODELS } from "./ships-rows.ts";
import { measureStored, STORED_MODEL } from "./stored.ts";
import { median, percent } from "./tables.ts";
import { type Scale, startUpstream, type TargetKind, type Upstream } from "./targets.ts";

const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    peers: { type: "string" },
    before: { type: "string" },
    only: { type: "string", multiple: true, default: [] },
    json: { type: "string" },
    docs: { type: "boolean", default: false },
    published: { type: "boolean", default: false },
    durable: { type: "boolean", default: false },
    growth: { type: "boolean", default: false },
    neighbours: { type: "boolean", default: false },
    fair: { type: "boolean", default: false },
  },
});

/** Two checkouts differ by a few per cent: they need more rounds. */
const scale: Scale = options.quick
  ? { windowMs: 250, warmUpMs: 100, rounds: 1 }
  : { windowMs: 1000, warmUpMs: 300, rounds: options.before === undefined ? 3 : 9 };

/**
 * A measurement is repeated if other processes used more of the machine than this: at most twice, and only while
 * repeating takes at most a minute of the run.
 */
const NOISY = 0.1;
let repeatBudgetMs = options.quick ? 0 : 60_000;
const noises: number[] = [];

process.on("SIGINT", () => process.exit(130));
process.on("SIGTERM", () => process.exit(143));

const head = `${machineLine()} · workerd ${workerdVersion}${pinSelf() ? ", gateway pinned to one core, model server and client to the other" : ""}`;
const models = new Set([
  "simulator",
  ...SHIPS_MODELS,
  ...PUBLISHED_MODELS,
  GROWTH_MODEL,
  STORED_MODEL,
  ...HEAVY_MODELS,
]);
const peers = options.peers === undefined ? [] : readPeers(options.peers);
const upstream = await startUpstream(OTHER_CORE, [...models]);
if (options.published) await runPublished(upstream);
else if (options.durable) await runDurable(upstream);
else if (options.growth) await runGrowth(upstream);
else if (options.neighbours) await runNeighbours(upstream);
else if (options.fair) await runFair();
else await runShips(upstream);
await upstream.stop();

async function runShips(upstream: Upstream): Promise<void> {
  const results = await measureShips(upstream, {
    ...{ scale, progress, only: options.only, attempt },
    before: options.before === undefined ? undefined : resolve(options.before),
    peers,
  });
  const goals = options.before === undefined ? `\n\n${goalsReport(results)}` : "";
  publish(results, shipsReport(`${head}\n\n${noiseLine()}${goals}`, results), "--docs");
}

async function runPublished(upstream: Upstream): Promise<void> {
  for (const name of publishedTables(options.only)) {
    noises.length = 0;
    const { report, picture, ...results } = await measurePublished(upstream, name, peers, {
      ...{ scale, progress, attempt, only: [] },
    });
    if (options.docs)
      writeFileSync(new URL(`../../docs/images/${name.replace(" ", "-")}.svg`, import.meta.url), picture);
    publish(results, `${head}. ${noiseLine()}\n\n${report}`, `--published --only "${name}" --docs`);
  }
}

function noiseLine(): string {
  return `Other work took ${percent(median(noises))} of the machine (worst ${percent(Math.max(...noises))}).`;
}

async function runDurable(upstream: Upstream): Promise<void> {
  const scale = options.quick
    ? { runs: 100, resumes: 60, kills: 3, handOvers: 20, streams: 8, tokens: 100 }
    : { runs: 1_000, resumes: 600, kills: 12, handOvers: 100, streams: 32, tokens: 500 };
  const measured = await measureDurable(upstream, scale, progress);
  publish(measured, `${head}\n\n${measured}`, "--durable --docs");
}

async function runGrowth(upstream: Upstream): Promise<void> {
  for (const [name, measure] of Object.entries({ turns: measureGrowth, stored: measureStored, heavy: measureHeavy })) {
    if (options.only.length > 0 && !options.only.includes(name)) continue;
    const measured = await measure(upstream, progress);
    publish(measured, `${head}\n\n${measured}`, `--growth --only ${name} --docs`);
  }
}

async function runNeighbours(upstream: Upstream): Promise<void> {
  const measured = await measureNeighbours(upstream, options.quick ? 3_000 : 12_000, progress);
  publish(measured, `${head}\n\n${measured}`, "--neighbours --docs");
}

async function runFair(): Promise<void> {
  const measured = await measureFair(options.quick ? 5_000 : 20_000, progress);
  publish(measured, `${head}\n\n${measured}`, "--fair --docs");
}

/** Prints the results, and writes them if the options say so. `flags` name the place of its table in the page. */
function publish(results: unknown, tables: string, flags: string): void {
  progress("");
  console.log(tables);
  if (options.docs) writeDocument(tables, flags);
  if (options.json) writeFileSync(options.json, `${JSON.stringify(results, null, 2)}\n`);
}

/** Writes the tables into the page that has the marks for `flags`. */
function writeDocument(tables: string, flags: string): void {
  const mark = `<!-- results: npm run bench -- ${flags} -->`;
  for (const page of ["benchmarks.md", "benchmarks-method.md"]) {
    const document = new URL(`../../docs/${page}`, import.meta.url);
    const text = readFileSync(document, "utf8");
    const begin = text.indexOf(mark);
    if (begin === -1) continue;
    const end = text.indexOf("<!-- end of results -->", begin);
    writeFileSync(document, `${text.slice(0, begin)}${mark}\n\n${tables}\n\n${text.slice(end)}`);
    return;
  }
  throw new Error(`no page has a place for ${flags}`);
}

/** Measures a target. Gives undefined for a peer that does not support it. */
async function attempt<T>({ name, isPeer }: TargetKind, measure: () => Promise<T>): Promise<T | undefined> {
  try {
    return await quietly(measure);
  } catch (error) {
    if (!isPeer) throw error;
    progress("");
    console.error(`${name}: ${String(error)}`);
    return undefined;
  }
}

/** Measures, and repeats the measurement if other processes were busy. The attempt with the least other work counts. */
async function quietly<T>(measure: () => Promise<T>): Promise<T> {
  let best: { value: T; noise: number } | undefined;
  for (let attempt = 0; attempt < 3 && (!best || repeatBudgetMs > 0); attempt += 1) {
    const start = performance.now();
    const stopWatching = watchNoise();
    const value = await measure();
    const noise = stopWatching();
    if (best) repeatBudgetMs -= performance.now() - start;
    if (!best || noise < best.noise) best = { value, noise };
    if (best.noise <= NOISY) break;
  }
  if (!best) throw new Error("nothing was measured");
  noises.push(best.noise);
  return best.value;
}

function progress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
  else if (text !== "") console.error(text);
}
