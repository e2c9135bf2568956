import { type HarmonyResults, harmonyTables, harmonyVerdicts } from "./harmony-report.ts";
import type { ProfileLine } from "./profile.ts";
import {
  CHAIN_LENGTH,
  CHAIN_WAYS,
  type ChainTurn,
  MEMORY_STREAMS,
  type Measurement,
  type Scenario,
  type StoredTurnCost,
} from "./scenarios.ts";
import { median } from "./statistics.ts";
import { number, percent, table, type Verdict } from "./tables.ts";
import { TARGETS, type TargetName } from "./targets.ts";

/** Everything that a run has measured. */
export interface Results {
  machine: string;
  versions: string;
  /** What other processes took of the machine: the median of all measurements, and the worst. */
  noise: { median: number; worst: number; repeated: number };
  /** Per scenario: what each round measured of each target. */
  scenarios: { scenario: Scenario; rounds: Partial<Record<TargetName, Measurement>>[] }[];
  memory: Partial<Record<TargetName, Measurement>>;
  stored: StoredTurnCost[];
  /** CPU µs of a Worker that only writes a row, into a new object and into a known one. */
  objectFloor: { fresh: number; known: number };
  /** Per round, turn 2 and turn 200. */
  chain: { second: ChainTurn; last: ChainTurn }[];
  harmony: HarmonyResults;
}

export function report(results: Results): string {
  return [
    `${results.machine} · ${results.versions}`,
    `Medians of interleaved rounds; in brackets the ratio to direct, the median of each round's own. Other work took ` +
      `${percent(results.noise.median)} of the machine (worst ${percent(results.noise.worst)}; ` +
      `${results.noise.repeated} measurements were repeated for noise).`,
    targetTable(verdicts(results)),
    mainTable(results),
    memoryTable(results.memory),
    storedTable(results.stored),
    `The runtime's own price of storing: a Worker that does nothing but write one row takes ` +
      `${number(results.objectFloor.fresh, 0)} µs CPU when the object is new (as with every first turn here) and ` +
      `${number(results.objectFloor.known, 0)} µs when it is not.`,
    chainTable(results.chain),
    ...harmonyTables(results.harmony),
  ].join("\n\n");
}

function mainTable({ scenarios }: Results): string {
  const rows: string[][] = [];
  for (const { scenario, rounds } of scenarios) {
    let title = `**${scenario.name}** `;
    for (const [metric, digits] of Object.entries(scenario.metrics)) {
      const cells = TARGETS.map((target) => {
        const values = pick(rounds, target, metric);
        if (values.length === 0) return "–";
        const value = number(median(values), digits);
        return target === "direct" ? value : `${value} (×${ratio(rounds, target, metric)})`;
      });
      rows.push([title + metric, ...cells]);
      title = "";
      if (/^first .* p50/.test(metric)) {
        rows.push([`${metric}, added`, ...TARGETS.map((target) => signed(added(rounds, target, metric)))]);
      }
    }
  }
  return table(["", ...TARGETS], rows);
}

function memoryTable(memory: Results["memory"]): string {
  const names = TARGETS.filter((target) => memory[target]);
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

/** CPU µs that the last turn of the chain takes beyond the second. */
function growth(chain: Results["chain"], way: (typeof CHAIN_WAYS)[number]): number {
  return median(chain.map(({ second, last }) => last.ways[way].cpuMicros - second.ways[way].cpuMicros));
}

const CPU_PER_DELTA = "CPU µs / delta";

/** The targets of docs/benchmarks.md against what was measured. */
export function verdicts(results: Results): Verdict[] {
  const found: Verdict[] = [];
  const check = (target: string, value: number, limit: number, unit: string) =>
    found.push({ target, measured: `${number(value, 2)} ${unit}`, met: value <= limit });
  const rounds = (name: string) =>
    results.scenarios.find(({ scenario }) => scenario.name.startsWith(name))?.rounds ?? [];
  for (const target of ["store:false", "store:true"] as const) {
    const value = median(pick(rounds("Flood, 8 clients × 500 deltas, 16"), target, CPU_PER_DELTA));
    check(`≤ 10 µs CPU per delta event, 16 per read, ${target}`, value, 10, "µs");
  }
  const limits = { "store:false": 1, "store:true": 2 };
  for (const [target, limit] of Object.entries(limits) as [keyof typeof limits, number][]) {
    for (const what of ["event", "delta"]) {
      const value = added(rounds("First event"), target, `first ${what} p50 ms`);
      check(`≤ ${limit} ms added p50 to the first ${what}, ${target}`, value, limit, "ms");
    }
  }
  const continued = median(
    results.chain.map(({ second: { ways } }) => ways["by id, stored"].firstDeltaMs - ways.direct.firstDeltaMs),
  );
  check("≤ 2 ms added p50 to the first delta, stored turn 2, which reads its home", continued, 2, "ms");
  const more = growth(results.chain, "by id");
  const bytes = growth(results.chain, "resent");
  found.push({
    target: `Turn ${CHAIN_LENGTH} by id costs no more CPU beyond turn 2 than the same bytes resent`,
    measured: `${number(more, 0)} µs against ${number(bytes, 0)} µs`,
    met: more <= bytes,
  });
  found.push(...harmonyVerdicts(results.harmony));
  return found;
}

export function targetTable(list: readonly Verdict[]): string {
  return table(
    ["Target", "measured", ""],
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

function pick(
  rounds: readonly Partial<Record<TargetName, Measurement>>[],
  target: TargetName,
  metric: string,
): number[] {
  return rounds.map((round) => round[target]?.[metric]).filter((value) => value !== undefined);
}

/** The median over the rounds of what `target` takes beyond direct. */
function added(
  rounds: readonly Partial<Record<TargetName, Measurement>>[],
  target: TargetName,
  metric: string,
): number {
  return median(
    rounds.map((round) => (round[target]?.[metric] ?? Number.NaN) - (round.direct?.[metric] ?? Number.NaN)),
  );
}

function ratio(
  rounds: readonly Partial<Record<TargetName, Measurement>>[],
  target: TargetName,
  metric: string,
): string {
  const value = median(rounds.map((round) => (round[target]?.[metric] ?? Number.NaN) / (round.direct?.[metric] ?? 0)));
  if (!Number.isFinite(value)) return "–";
  return value >= 10 ? value.toFixed(0) : value.toPrecision(2);
}

function signed(value: number): string {
  return `${value < 0 ? "−" : "+"}${number(Math.abs(value), 2)}`;
}
