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
