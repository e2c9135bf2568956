/**
 * How far this thread is behind, as its timers tell: by how much they ring late. A thread that has more to read than it can
 * reads less often, and then more at a time: what comes is left to gather. So its streams are late by some milliseconds,
 * where each of them would else get a part of its tokens.
 */

/**
 * A timer's lateness counts by the time since the one before, up to a limit: those that ring together after a standstill tell of
 * one, and one that rings alone does not tell of much. Milliseconds.
 */
const LAG_TIME_MS = 200;
const MAX_TOLD_MS = 50;

/** A timer that rings later than this tells of a clock that was set, or a machine that slept. Milliseconds. */
const MAX_LATE_MS = 1_000;

/** What no timer has told of for so long is nothing. Milliseconds. */
const KNOWN_MS = 2_000;

/** A thread that is less behind than this is not. One that is pauses for twice as long, up to a limit. Milliseconds. */
const LAG_MS = 4;
const PAUSE_PER_LAG = 2;
const MAX_PAUSE_MS = 100;

/**
 * A pause that helps takes its own reason away. It becomes shorter slowly, by two thirds in this time: pauses that end at once are
 * followed by the next standstill. Milliseconds.
 */
const FADE_MS = 4_000;

let lagMs = 0;
let pauseMs = 0;
let toldAt = 0;

/** `setTimeout`, for a timer that tells how far the thread is behind. */
export function setTellingTimeout(ring: () => void, ms: number): ReturnType<typeof setTimeout> {
  const dueAt = Date.now() + ms;
  return setTimeout(() => {
    tell(Date.now(), dueAt);
    ring();
  }, ms);
}

function tell(now: number, dueAt: number): void {
  const sinceMs = Math.max(0, now - toldAt);
  toldAt = now;
  const lateMs = Math.min(MAX_LATE_MS, Math.max(0, now - dueAt));
  lagMs += (lateMs - lagMs) * (1 - Math.exp(-Math.min(sinceMs, MAX_TOLD_MS) / LAG_TIME_MS));
  const neededMs = lagMs <= LAG_MS ? 0 : Math.min(MAX_PAUSE_MS, PAUSE_PER_LAG * lagMs);
  pauseMs = Math.max(neededMs, pauseMs * Math.exp(-sinceMs / FADE_MS));
}

/** How long streams are not read because the thread is behind. Milliseconds; next to none: it is not. */
export function lagPauseMs(): number {
  return Date.now() - toldAt > KNOWN_MS ? 0 : pauseMs;
}
