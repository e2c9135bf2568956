import { type HarmonyResults, harmonyTables, harmonyVerdicts } from "./harmony-report.ts";
import { MEMORY_STREAMS } from "./memory.ts";
import type { ProfileLine } from "./profile.ts";
import {
  CHAIN_LENGTH,
  CHAIN_WAYS,
  type ChainTurn,
  type Measurement,
  type Scenario,
  type StoredTurnCost,
} from "./scenarios.ts";
import { median } from "./statistics.ts";
import { number, percent, table, type Verdict } from "./tables.ts";
import type { TargetKind } from "./targets.ts";

/** All measurements of a run. */
export interface Results {
  machine: string;
  versions: string;
  /** The CPU that other processes used: the median of all measurements, and the maximum. */
  noise: { median: number; worst: number; repeated: number };
  /** The columns. */
  targets: Pick<TargetKind, "name" | "peer">[];
  /** The measurements of each round, by scenario and target. */
  scenarios: { scenario: Scenario; rounds: Partial<Record<string, Measurement>>[] }[];
  /** The targets in `targets`, and our and other gateways with V8's flags of `npm start`. */
  memory: Partial<Record<string, Measurement>>;
  stored: StoredTurnCost[];
  /** CPU µs of a Worker that only writes a row, into a new and into a known object. */
  objectMinimum: { fresh: number; known: number };
  /** Turn 2 and turn 200, for each round. */
  chain: { second: ChainTurn; last: ChainTurn }[];
  /** CPU µs of a stored turn as JSON that continues another, for each round. */
  laterTurns: number[];
  harmony: HarmonyResults;
}

export function report(results: Results): string {
  return [
    `${results.machine} · ${results.versions}`,
    `Medians of interleaved rounds (${results.scenarios[0]?.rounds.length ?? 0}); in brackets the ratio to direct, the median of each round's own. Other work took ` +
      `${percent(results.noise.median)} of the machine (worst ${percent(results.noise.worst)}; ` +
      `${results.noise.repeated} measurements were repeated for noise).`,
    targetTable(verdicts(results)),
    mainTable(results),
    memoryTable(results.memory),
    storedTable(results.stored),
    `The runtime's own price of storing: a Worker that does nothing but write one row takes ` +
      `${number(results.objectMinimum.fresh, 0)} µs CPU when the object is new and ` +
      `${number(results.objectMinimum.known, 0)} µs when it is not.`,
    chainTable(results.chain),
    ...harmonyTables(results.harmony),
  ].join("\n\n");
}

function mainTable({ scenarios, targets }: Results): string {
  const names = targets.map(({ name }) => name);
  const rows: string[][] = [];
  for (const { scenario, rounds } of scenarios) {
    let title = `**${scenario.name}** `;
    for (const [metric, digits] of Object.entries(scenario.metrics)) {
      const cells = names.map((target) => {
        const values = pick(rounds, target, metric);
        if (values.length === 0) return "–";
        const value = number(median(values), digits);
        return target === "direct" ? value : `${value} (×${ratio(rounds, target, metric)})`;
      });
      rows.push([title + metric, ...cells]);
      title = "";
      if (/^first .* p50/.test(metric)) {
        rows.push([`${metric}, added`, ...names.map((target) => signed(added(rounds, target, metric)))]);
      }
    }
  }
  return table(["", ...names], rows);
}

function memoryTable(memory: Results["memory"]): string {
  const names = Object.keys(memory);
  const metrics = Object.keys(memory["store:false"] ?? {});
  return table(
    [`Memory, ${MEMORY_STREAMS} open streams`, ...names],
    metrics.map((metric) => [metric, ...names.map((name) => number(memory[name]?.[metric] ?? Number.NaN, 0))]),
  );
}

function storedTable(stored: readonly StoredTurnCost[]): string {
  return table(
    ["A stored turn at its home", "object calls", "rows written", "of these alarms", "rows read"],
    stored.map(({ turn, calls, rowsWritten, rowsRead, alarms }) => [
      turn,
      calls.length === 0 ? "0" : `${calls.length} (${calls.join(", ")})`,
      String(rowsWritten),
      String(alarms),
      String(rowsRead),
    ]),
  );
}

function chainTable(chain: Results["chain"]): string {
  const rows: string[][] = [];
  const kilobytes = (turn: "second" | "last") => median(chain.map((round) => round[turn].promptBytes)) / 1000;
  rows.push([
    "prompt, kB",
    ...CHAIN_WAYS.map(() => `${number(kilobytes("second"), 1)} → ${number(kilobytes("last"), 1)}`),
  ]);
  for (const [label, digits, read] of [
    ["CPU µs / turn", 0, (turn: ChainTurn, way: (typeof CHAIN_WAYS)[number]) => turn.ways[way].cpuMicros],
    ["first delta p50 ms", 2, (turn: ChainTurn, way: (typeof CHAIN_WAYS)[number]) => turn.ways[way].firstDeltaMs],
  ] as const) {
    rows.push([
      label,
      ...CHAIN_WAYS.map((way) => {
        const [from, to] = (["second", "last"] as const).map((turn) =>
          median(chain.map((round) => read(round[turn], way))),
        );
        return `${number(from ?? Number.NaN, digits)} → ${number(to ?? Number.NaN, digits)}`;
      }),
    ]);
  }
  rows.push(["CPU µs more", ...CHAIN_WAYS.map((way) => number(growth(chain, way), 0))]);
  return table([`Turn 2 → turn ${CHAIN_LENGTH} of a chain`, ...CHAIN_WAYS], rows);
}

/** CPU µs of the last turn of the chain beyond the second. */
function growth(chain: Results["chain"], way: (typeof CHAIN_WAYS)[number]): number {
  return median(chain.map(({ second, last }) => last.ways[way].cpuMicros - second.ways[way].cpuMicros));
}

/** Compares the gateways' measurements with their limits, which come from this run's own measurements. */
export function verdicts(results: Results): Verdict[] {
  const value = (scenario: string, target: string, metric: string) =>
    median(
      pick(results.scenarios.find(({ scenario: { name } }) => name.startsWith(scenario))?.rounds ?? [], target, metric),
    );
  const found: Verdict[] = [];
  const check = (target: string, measured: number, limit: number, unit: string, digits = 2) => {
    // A peer that does not support it sets no limit.
    if (!Number.isFinite(limit)) return;
    found.push({
      target,
      measured: `${number(measured, digits)}${unit} of ${number(limit, digits)}${unit}`,
      met: measured <= limit,
    });
  };
  const peers = results.targets.filter(({ peer }) => peer === "javascript").map(({ name }) => name);

  const json = "JSON answers of 20 tokens, 32";
  const PER_REQUEST = "CPU µs / request";
  const PER_DELTA = "CPU µs / delta";
  const baseline = value("128 streams", "translates", PER_DELTA);
  for (const { target, name, perFloodToken } of TRANSPORTS) {
    check(`JSON of 20 tokens, ${name}, CPU`, value(json, target, PER_REQUEST), 540, " µs", 0);
    for (const peer of peers) {
      check(`the same, below ${peer}`, value(json, target, PER_REQUEST), value(json, peer, PER_REQUEST), " µs", 0);
    }
    check(`A token, an HTTP chunk each, flood, ${name}`, value(CHUNK_EACH, target, PER_DELTA), perFloodToken, " µs");
    check(`A token, 16 per chunk, flood, ${name}`, value(CHUNKS_OF_16, target, PER_DELTA), 7, " µs");
    check(
      `A token at 20 ms, 128 streams, ${name}, against a Worker that only translates`,
      value("128 streams", target, PER_DELTA),
      baseline,
      " µs",
      0,
    );
    check(
      "The same, 512 streams on one thread: under load at most 0.7 of it",
      value("512 streams", target, PER_DELTA),
      0.7 * baseline,
      " µs",
      0,
    );
    const inTime = value("512 streams", target, "share in time");
    found.push({
      target: `512 streams at 20 ms on one thread, ${name}, share of the tokens in time ≥ 0.95`,
      measured: number(inTime, 2),
      met: inTime >= 0.95,
    });
    for (const peer of peers) {
      for (const metric of ["gap p99 ms", "first event p99 ms"]) {
        check(
          `512 streams, ${name}, ${metric.replace(" ms", "")}, below ${peer}`,
          value("512 streams", target, metric),
          value("512 streams", peer, metric),
          " ms",
          0,
        );
      }
    }
  }
  check("A token, 16 per chunk, flood, stored", value(CHUNKS_OF_16, "store:true", PER_DELTA), 9, " µs");
  const perStream = (target: string) => results.memory[target]?.["kB / stream"] ?? Number.NaN;
  for (const target of ["store:false", "store:true"]) {
    check(
      `An open stream, ${target}, at most 1.1 × a Worker that only reads`,
      perStream(target),
      1.1 * perStream("reads"),
      " kB",
      0,
    );
  }
  check("An open stream with npm start's flags", perStream("store:false, flags"), 220, " kB", 0);
  const firstDelta = (target: string) => {
    const { rounds = [] } = results.scenarios.find(({ scenario: { name } }) => name.startsWith("First event")) ?? {};
    return added(rounds, target, "first delta p50 ms");
  };
  for (const target of ["store:false", "store:false, mixed", "store:true"]) {
    check(
      `Added to the first delta, ${target}, at most 1.1 × a Worker that only translates`,
      firstDelta(target),
      1.1 * firstDelta("translates"),
      " ms",
    );
  }
  check("Stored turn, JSON, CPU: first", value(json, "store:true", PER_REQUEST) / 1000, 1.2, " ms");
  check("Stored turn, JSON, CPU: later", median(results.laterTurns) / 1000, 1, " ms");
  const last = median(results.chain.map(({ last: { ways } }) => ways["by id, stored"].cpuMicros));
  check(`Turn ${CHAIN_LENGTH} by id, CPU`, last / 1000, 4, " ms");
  check(
    `Turn ${CHAIN_LENGTH} by id, CPU beyond turn 2, against the same bytes resent`,
    growth(results.chain, "by id"),
    growth(results.chain, "resent"),
    " µs",
    0,
  );
  found.push(...harmonyVerdicts(results.harmony));
  return found;
}

/** The targets without storage, by transport, with the CPU limit of a token of a flood. */
const TRANSPORTS = [
  { target: "store:false", name: "store:false", perFloodToken: 15 },
  { target: "store:false, mixed", name: "store:false, mixed transport", perFloodToken: 8 },
];

const CHUNK_EACH = "Flood, 8 clients × 500 deltas, an HTTP chunk each";
const CHUNKS_OF_16 = "Flood, 8 clients × 500 deltas, 16";

export function targetTable(list: readonly Verdict[]): string {
  return table(
    ["Target", "measured, of at most", ""],
    list.map(({ target, measured, met }) => [target, measured, met ? "met" : "**not met**"]),
  );
}

export function profileTable(name: string, lines: readonly ProfileLine[]): string {
  const top = lines.filter(({ self }) => self >= 0.01).slice(0, 25);
  return table(
    [name, "self", "with callees"],
    top.map(({ name, self, total }) => [`\`${name}\``, percent(self), percent(total)]),
  );
}

function pick(rounds: readonly Partial<Record<string, Measurement>>[], target: string, metric: string): number[] {
  return rounds.map((round) => round[target]?.[metric]).filter((value) => value !== undefined);
}

/** The median over the rounds of the cost of `target` beyond a direct request. */
function added(rounds: readonly Partial<Record<string, Measurement>>[], target: string, metric: string): number {
  return median(
    rounds.map((round) => (round[target]?.[metric] ?? Number.NaN) - (round.direct?.[metric] ?? Number.NaN)),
  );
}

function ratio(rounds: readonly Partial<Record<string, Measurement>>[], target: string, metric: string): string {
  const value = median(rounds.map((round) => (round[target]?.[metric] ?? Number.NaN) / (round.direct?.[metric] ?? 0)));
  if (!Number.isFinite(value)) return "–";
  return value >= 10 ? value.toFixed(0) : value.toPrecision(2);
}

function signed(value: number): string {
  return `${value < 0 ? "−" : "+"}${number(Math.abs(value), 2)}`;
}
