import type { BudgetWindow } from "./limits.ts";

/**
 * A sliding window of a minute: the usage in each of its seconds. The second that is just ending counts in full, so
 * usage counts for 60 to 61 seconds, and no 60 seconds have more than the limit. A clock that goes back blocks nothing:
 * usage in seconds of the future counts as used now. One that goes forward empties the window, as the passing of that
 * time does: the two cannot be distinguished.
 */

/** Seconds of Unix time, oldest first, and the usage in each. Plain data, in its stored form. */
export type Window = (readonly [second: number, amount: number])[];

const SECONDS = 60;

/** The maximum time for which usage counts. */
export const WINDOW_MS = (SECONDS + 1) * 1000;

function secondOf(now: number): number {
  return Math.floor(now / 1000);
}

/** The window at `now` (Unix milliseconds), without expired seconds. */
export function slid(window: Window, now: number): Window {
  const second = secondOf(now);
  const from = second - SECONDS;
  const [first] = window;
  const last = window.at(-1);
  if (!first || !last || (first[0] >= from && last[0] <= second)) return window;
  const kept: Window = [];
  let early = 0;
  for (const entry of window) {
    if (entry[0] > second) early += entry[1];
    else if (entry[0] >= from) kept.push(entry);
  }
  return early === 0 ? kept : added(kept, early, now);
}

/** The window with this much more used now; a negative amount gives back usage that was counted before. */
export function added(window: Window, amount: number, now: number): Window {
  if (amount === 0) return window;
  const second = secondOf(now);
  const last = window.at(-1);
  if (last?.[0] === second) return [...window.slice(0, -1), [second, last[1] + amount]];
  return [...window, [second, amount]];
}

export function sumOf(window: Window): number {
  let sum = 0;
  for (const [, amount] of window) sum += amount;
  return sum;
}

/** The time until this much has left the window, in milliseconds. Infinity if the window has less. */
export function msUntilFreed(window: Window, amount: number, now: number): number {
  let freed = 0;
  for (const [second, used] of window) {
    freed += used;
    if (freed >= amount) return Math.max(1, (second + SECONDS + 1) * 1000 - now);
  }
  return Number.POSITIVE_INFINITY;
}

/** The time until the window is empty. */
export function msUntilEmpty(window: Window, now: number): number {
  const last = window.at(-1);
  return last ? Math.max(0, (last[0] + SECONDS + 1) * 1000 - now) : 0;
}

/**
 * The usage of a budget, by its periods. Periods are the calendar's, in UTC. Earlier ones are kept for a while: a clock
 * that goes into another period and comes back finds its usage, and resets nothing.
 */
export interface BudgetPeriod {
  window: BudgetWindow;
  /** Unix milliseconds; 0 for a budget without periods. */
  start: number;
  tokens: number;
  /** Millionths of a dollar. */
  cost: number;
}

/** The number of kept periods beside the current one. */
const KEPT = 3;

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** The lengths of periods that have a fixed one. */
const LENGTHS = { hour: HOUR_MS, day: DAY_MS, week: 7 * DAY_MS };

/** 1 January 1970 was a Thursday, three days after the beginning of its week. */
const WEEK_BEFORE_MS = 3 * DAY_MS;

/** The beginning of the period at `now`, in Unix milliseconds. */
export function periodStart(window: BudgetWindow, now: number): number {
  if (window === "total") return 0;
  const date = new Date(now);
  if (window === "month") return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1);
  const before = window === "week" ? WEEK_BEFORE_MS : 0;
  return Math.floor((now + before) / LENGTHS[window]) * LENGTHS[window] - before;
}

/** The beginning of the next one; undefined without periods. */
export function periodEnd(window: BudgetWindow, now: number): number | undefined {
  if (window === "total") return undefined;
  const date = new Date(now);
  if (window === "month") return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1);
  return periodStart(window, now) + LENGTHS[window];
}

/** The usage of the period at `now`. */
export function usedInPeriod(
  periods: readonly BudgetPeriod[],
  window: BudgetWindow,
  now: number,
): { tokens: number; cost: number } {
  const start = periodStart(window, now);
  return periods.find((each) => each.window === window && each.start === start) ?? { tokens: 0, cost: 0 };
}

/** The periods with this much more used now; the latest used one first. */
export function withUsed(
  periods: readonly BudgetPeriod[],
  window: BudgetWindow,
  { tokens, cost }: { tokens: number; cost: number },
  now: number,
): BudgetPeriod[] {
  const start = periodStart(window, now);
  const before = usedInPeriod(periods, window, now);
  const others = periods.filter((each) => each.window !== window || each.start !== start);
  return [{ window, start, tokens: before.tokens + tokens, cost: before.cost + cost }, ...others.slice(0, KEPT)];
}
