/**
 * How far this thread is behind, as its timers tell: by how much they ring late. A thread that has more to read than it can
 * reads less often, and then more at a time: what comes is left to gather. So its streams are late by some milliseconds,
 * where each of them would else get a part of its tokens.
 */

/** Of each lateness, how much it changes what is known. */
const WEIGHT = 1 / 32;

/** A timer that rings later than this tells of a clock that was set, or a machine that slept. Milliseconds. */
const MAX_LATE_MS = 1_000;

/** What no timer has told of for so long is nothing. Milliseconds. */
const KNOWN_MS = 2_000;

/** A thread that is less behind than this is not. One that is pauses for several times as long, up to a limit. Milliseconds. */
const LAG_MS = 8;
const PAUSE_PER_LAG = 4;
const MAX_PAUSE_MS = 100;

let lagMs = 0;
let toldAt = 0;

/** `setTimeout`, for a timer that tells how far the thread is behind. */
export function setTellingTimeout(ring: () => void, ms: number): ReturnType<typeof setTimeout> {
  const dueAt = Date.now() + ms;
  return setTimeout(() => {
    toldAt = Date.now();
    const lateMs = Math.min(MAX_LATE_MS, Math.max(0, toldAt - dueAt));
    lagMs += (lateMs - lagMs) * WEIGHT;
    ring();
  }, ms);
}

/** How long streams are not read because the thread is behind. Milliseconds; 0: it is not. */
export function lagPauseMs(): number {
  if (lagMs <= LAG_MS || Date.now() - toldAt > KNOWN_MS) return 0;
  return Math.min(MAX_PAUSE_MS, PAUSE_PER_LAG * lagMs);
}
