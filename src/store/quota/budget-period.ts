import type { BudgetWindow } from "../../contract/grants.ts";

/**
 * What was used of a budget, by the period that it was used in. Periods are the calendar's, in UTC. Those of before are
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

/** What was used in the period that `now` is in. */
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
