import type { BudgetWindow } from "./limits.ts";

/**
 * A sliding window of a minute: what was used in each of its seconds. The second that is just ending counts whole, so what
 * is used counts for 60 to 61 seconds, and in no 60 seconds is more used than the limit.
 *
 * A clock that goes back does not lock anybody out: what was used in seconds that are yet to come counts as used now. One
 * that goes forward empties the window, as the passing of that time does: of these two nobody can tell which it is.
 */

/** Seconds of Unix time, oldest first, and what was used in each. Plain data: this is how it is kept. */
export type Window = (readonly [second: number, amount: number])[];

const SECONDS = 60;

/** How long what is used counts, at most. */
export const WINDOW_MS = (SECONDS + 1) * 1000;

function secondOf(now: number): number {
  return Math.floor(now / 1000);
}

/** The window as it is at `now` (Unix milliseconds): without what has left it. */
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

/** The window with so much more used now; less than nothing gives back what was counted before. */
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

/** How long until so much has left the window, in milliseconds. Infinity where there is not so much in it. */
export function msUntilFreed(window: Window, amount: number, now: number): number {
  let freed = 0;
  for (const [second, used] of window) {
    freed += used;
    if (freed >= amount) return Math.max(1, (second + SECONDS + 1) * 1000 - now);
  }
  return Number.POSITIVE_INFINITY;
}

/** How long until nothing is in it. */
export function msUntilEmpty(window: Window, now: number): number {
  const last = window.at(-1);
  return last ? Math.max(0, (last[0] + SECONDS + 1) * 1000 - now) : 0;
}

/**
 * The usage of a budget, by the period that it was used in. Periods are the calendar's, in UTC. Those of before are
 * kept for a while: a clock that goes into another period and comes back finds what was used, and opens nothing.
 */
export interface BudgetPeriod {
  window: BudgetWindow;
  /** Unix milliseconds; 0 of one that never begins anew. */
  start: number;
  tokens: number;
  /** Millionths of a dollar. */
  cost: number;
}

/** Periods that are kept beside the current one. */
const KEPT = 3;

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** When the period began that `now` is in, in Unix milliseconds. */
export function periodStart(window: BudgetWindow, now: number): number {
  switch (window) {
    case "hour":
      return Math.floor(now / HOUR_MS) * HOUR_MS;
    case "day":
      return Math.floor(now / DAY_MS) * DAY_MS;
    case "week":
      // 1 January 1970 was a Thursday.
      return (Math.floor((now / DAY_MS + 3) / 7) * 7 - 3) * DAY_MS;
    case "month": {
      const date = new Date(now);
      return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1);
    }
    case "total":
      return 0;
  }
}

/** When the next one begins; undefined of one that never does. */
export function periodEnd(window: BudgetWindow, now: number): number | undefined {
  const start = periodStart(window, now);
  switch (window) {
    case "hour":
      return start + HOUR_MS;
    case "day":
      return start + DAY_MS;
    case "week":
      return start + 7 * DAY_MS;
    case "month": {
      const date = new Date(start);
      return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1);
    }
    case "total":
      return undefined;
  }
}

/** The usage of the period that `now` is in. */
export function usedInPeriod(
  periods: readonly BudgetPeriod[],
  window: BudgetWindow,
  now: number,
): { tokens: number; cost: number } {
  const start = periodStart(window, now);
  return periods.find((each) => each.window === window && each.start === start) ?? { tokens: 0, cost: 0 };
}

/** The periods with so much more used now; the one that was used last comes first. */
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
