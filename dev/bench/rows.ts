import { median, number, table } from "./tables.ts";
import {
  DIRECT,
  type Measurement,
  type Row,
  type Scale,
  startTarget,
  type Target,
  type TargetKind,
  type Upstream,
} from "./targets.ts";

/** The rows of a table: measured for each of its targets, in each round. */

/** Each round's measurements of a row, by target. */
export interface RowResults {
  row: Row;
  rounds: Partial<Record<string, Measurement>>[];
}

export interface RowsOptions {
  scale: Scale;
  /** Measures only the rows whose names contain one of these; all if there are none. */
  only: readonly string[];
  progress(text: string): void;
  /**
   * Measures, and repeats the measurement if other processes were busy. Gives undefined for a peer that does not
   * support it.
   */
  attempt<T>(kind: TargetKind, measure: () => Promise<T>): Promise<T | undefined>;
}

/** Starts the targets, without the peers that do not start. */
export async function startTargets(
  kinds: readonly TargetKind[],
  upstream: Upstream,
  { progress, attempt }: RowsOptions,
): Promise<Target[]> {
  const targets: Target[] = [];
  for (const kind of kinds) {
    progress(`starting ${kind.name}`);
    const target = await attempt(kind, () => startTarget(kind, upstream));
    if (target) targets.push(target);
  }
  return targets;
}

export function isWanted(name: string, only: readonly string[]): boolean {
  return only.length === 0 || only.some((text) => name.includes(text));
}

export async function measureRows(
  targets: readonly Target[],
  rows: readonly Row[],
  { scale, only, progress, attempt }: RowsOptions,
): Promise<RowResults[]> {
  const results = rows.filter(({ name }) => isWanted(name, only)).map((row): RowResults => ({ row, rounds: [] }));
  for (let round = 1; round <= scale.rounds; round += 1) {
    for (const { row, rounds } of results) {
      if (row.isOnce === true && round > 1) continue;
      const measured: Partial<Record<string, Measurement>> = {};
      for (const target of targets) {
        progress(`round ${round}: ${row.name}: ${target.name}`);
        measured[target.name] = await attempt(target, () => row.measure(target, scale));
      }
      rounds.push(measured);
    }
  }
  return results;
}

/** Gives the name of the target that another one is compared with. */
export type BaselineOf = (target: string, results: RowResults) => string;

/** A line for each metric of each row, a column for each target. */
export function rowLines(
  targets: readonly string[],
  results: readonly RowResults[],
  baselineOf: BaselineOf,
): string[][] {
  return results.flatMap((each) =>
    Object.entries(each.row.metrics).map(([metric, digits], index) => [
      index === 0 ? `**${each.row.name}** ${metric}` : metric,
      ...targets.map((target) => cellOf(each, target, metric, digits, baselineOf(target, each))),
    ]),
  );
}

/** Metrics with this end are values beyond that of a direct request in the same round. */
export const ADDED = ", added";

/** The value in a round, or NaN. */
function valueIn(round: RowResults["rounds"][number], target: string, metric: string): number {
  const beyond = metric.endsWith(ADDED) ? (round[DIRECT.name]?.[metric] ?? 0) : 0;
  return (round[target]?.[metric] ?? Number.NaN) - beyond;
}

/** The median of the rounds. NaN if it was not measured. */
export function medianOf({ rounds }: RowResults, target: string, metric: string): number {
  return median(rounds.map((round) => valueIn(round, target, metric)).filter(Number.isFinite));
}

/**
 * The median of the rounds' ratios to another target. Where that one has no such metric, it has the row's first one.
 */
export function ratioOf({ row, rounds }: RowResults, target: string, metric: string, baseline: string): number {
  const [first = metric] = Object.keys(row.metrics);
  const ratios = rounds.map((round) => {
    const compared = round[baseline]?.[metric] === undefined ? first : metric;
    return valueIn(round, target, metric) / valueIn(round, baseline, compared);
  });
  return median(ratios.filter(Number.isFinite));
}

function cellOf(results: RowResults, target: string, metric: string, digits: number, baseline: string): string {
  const value = number(medianOf(results, target, metric), digits);
  if (value === "–" || results.row.hasRatios === false || [DIRECT.name, baseline].includes(target)) return value;
  return `${value} (×${number(ratioOf(results, target, metric, baseline), 2)})`;
}

/** A line for each row. A cell has the values of all metrics, in the order of the head. */
export function combinedTable(targets: readonly string[], results: readonly RowResults[]): string {
  const metrics = new Set(results.flatMap(({ row }) => Object.keys(row.metrics)));
  const cell = (each: RowResults, target: string) => {
    const values = Object.entries(each.row.metrics).map(([metric, digits]) =>
      number(medianOf(each, target, metric), digits),
    );
    return values.every((value) => value === "–") ? "–" : values.join(" · ");
  };
  const lines = results.map((each) => [each.row.name, ...targets.map((target) => cell(each, target))]);
  return table([[...metrics].join(" · "), ...targets], lines);
}
