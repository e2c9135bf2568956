import { STORED } from "./chains.ts";
import { IN_TIME } from "./coming.ts";
import { medianOf, ratioOf } from "./rows.ts";
import { type ShipsResults, TRANSLATES } from "./ships.ts";
import {
  BY_ID,
  CPU,
  FIRST,
  GAP,
  GROWTH_WAYS,
  LATER,
  LINE_RATIO,
  MINIMUM_NAME,
  RESENT,
  SERVE,
  STREAM_KB,
} from "./ships-rows.ts";
import { number, table } from "./tables.ts";

/** The figures that are wanted of `serve`, beside those that `npm run bench` has measured. */

interface Goal {
  name: string;
  /** The figure may be at most, or at least, this. */
  most?: number;
  least?: number;
  /** Before each figure, and behind it. */
  sign?: string;
  unit?: string;
  digits: number;
  measured: number[];
  /** The same figures of the Workers that do the least (`minimum-worker.js`). */
  minimum?: number[];
}

const AGENTIC = `agentic-api${STORED}`;

/** Each pair: not stored, and stored. */
const OURS = [SERVE, SERVE + STORED] as const;
const MINIMUM = [MINIMUM_NAME, MINIMUM_NAME + STORED] as const;
type Pair = typeof OURS | typeof MINIMUM;

/** The goals of the rows that were measured. The worst figure counts, not stored and stored. */
export function goalsReport({ targets, rows, memory }: ShipsResults): string {
  /** The row whose name begins with a text. */
  const row = (text: string) => rows.find(({ row }) => row.name.startsWith(text)) ?? { row: EMPTY, rounds: [] };
  const ratio = (text: string, metric: string, target: string, baseline = TRANSLATES.name) =>
    ratioOf(row(text), target, metric, baseline);
  /** The figures of `serve`, and of the Workers that do the least. */
  const both = (figures: (pair: Pair) => number[]) => ({ measured: figures(OURS), minimum: figures(MINIMUM) });
  const eachOf = (text: string, metric: string) =>
    both((pair) => pair.map((target) => medianOf(row(text), target, metric)));
  const few = "JSON of 20 tokens, 32";
  const times = { sign: "×", digits: 2 };
  const goals: Goal[] = [
    { name: "JSON of 20 tokens, 32 clients, CPU", most: 2.2, ...times, ...both(([plain]) => [ratio(few, CPU, plain)]) },
    { name: "the same, a stored first turn", most: 4, ...times, ...both(([, stored]) => [ratio(few, CPU, stored)]) },
    {
      name: `the same, to ${AGENTIC}`,
      ...{ most: 1.3, ...times },
      ...both(([, stored]) => (targets.includes(AGENTIC) ? [ratio(few, CPU, stored, AGENTIC)] : [])),
    },
    {
      name: "the same, a stored later turn",
      most: 4.5,
      ...times,
      ...both(([, stored]) => [ratio(few, LATER, stored)]),
    },
    {
      name: "first delta added, a client",
      ...{ most: 1.5, ...times },
      ...both((pair) => pair.map((target) => ratio("A stream of 20", FIRST, target))),
    },
    {
      name: "200 streams a second that come and go, stored, in time",
      ...{ least: 0.95, digits: 2 },
      ...both(([, stored]) => [medianOf(row("Streams that come and go: 200"), stored, IN_TIME)]),
    },
    { name: "p99 of a gap, 512 streams on one thread", most: 60, unit: " ms", digits: 0, ...eachOf("512", GAP) },
    { name: "an open stream (1,000)", most: 150, unit: " kB", digits: 0, ...eachOf("1,000 open", STREAM_KB) },
    {
      name: "memory before the first request, all processes",
      ...{ most: 160, unit: " MB", digits: 0 },
      ...both(([, stored]) => [memory[stored]?.idle ?? Number.NaN]),
    },
    { name: "turn 200 resent, CPU", most: 2.5, ...times, ...both(([plain]) => [ratio("Turn 200", RESENT, plain)]) },
    {
      name: "turn 200 by id, stored, CPU",
      most: 5,
      ...times,
      ...both(([, stored]) => [ratio("Turn 200", BY_ID, stored)]),
    },
    {
      name: "turn 1,000 to turn 10, beyond its bytes",
      ...{ most: 1.3, ...times },
      measured: GROWTH_WAYS.map(({ name }) => medianOf(row("Turn 1,000"), OURS[1], name)),
    },
    {
      name: "a line of a batch to a create",
      ...{ most: 1.1, ...times },
      measured: [medianOf(row("A line of a batch"), OURS[1], LINE_RATIO)],
    },
  ];
  return table(["", "wanted", "measured", "minimum", ""], goals.flatMap(lineOf));
}

const EMPTY = { name: "", metrics: {}, measure: async () => ({}) };

function lineOf({ name, most, least, sign = "", unit = "", digits, measured, minimum = [] }: Goal): string[][] {
  const text = (values: readonly number[]) =>
    values
      .filter(Number.isFinite)
      .map((value) => `${sign}${number(value, digits)}${unit}`)
      .join("; ");
  const figures = measured.filter(Number.isFinite);
  if (figures.length === 0) return [];
  const isMet = figures.every((value) => value <= (most ?? value) && value >= (least ?? value));
  const wanted = most === undefined ? `≥ ${text([least ?? 0])}` : `≤ ${text([most])}`;
  return [[name, wanted, text(figures), text(minimum) || "–", isMet ? "met" : "**not met**"]];
}
