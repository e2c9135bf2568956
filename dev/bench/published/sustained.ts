import { watchStreams } from "../streams.ts";
import type { Measurement, Row, Target } from "../targets.ts";

/**
 * The largest number of streams of 64 deltas at 20 ms that are open at the same time, none of which is silent for more
 * than 200 ms between two deltas (the definition of https://onthebench.ai).
 */

const [DELTAS, DELTA_MS] = [64, 20] as const;
const STREAM_MS = DELTAS * DELTA_MS;
export const SUSTAINED_MODEL = `simulator?words=${DELTAS}&tps=${1_000 / DELTA_MS}`;

const LONGEST_GAP_MS = 200;
/** Streams that wait to begin have no gaps: so much of the deltas must come, too. */
const LEAST_SHARE = 0.9;

/** The published numbers of streams, and this benchmark's own maximum. */
const STEPS = [1, 32, 128, 512, 1_024] as const;
/** Then the numbers between the last one held and the first one that is not are halved as often. */
const HALVINGS = 2;

export const HELD = "streams held";

interface Trial {
  isHeld: boolean;
  longestMs: number;
}

async function tryStreams(target: Target, count: number, windowMs: number): Promise<Trial> {
  const streams = { count, model: SUSTAINED_MODEL, rampMs: STREAM_MS, settleMs: STREAM_MS / 4, windowMs: 2 * windowMs };
  try {
    const { gaps, came } = await watchStreams(target, streams);
    const longestMs = gaps.reduce((most, gap) => Math.max(most, gap), 0);
    const isComplete = came >= (LEAST_SHARE * count * streams.windowMs) / DELTA_MS;
    return { isHeld: isComplete && longestMs <= LONGEST_GAP_MS, longestMs };
  } catch {
    // The target refuses, or closes, streams.
    return { isHeld: false, longestMs: Number.NaN };
  }
}

async function measure(target: Target, { windowMs }: { windowMs: number }): Promise<Measurement> {
  let held = 0;
  let heldMs = Number.NaN;
  let failed: number = STEPS.at(-1) ?? 1;
  const attempt = async (count: number) => {
    const { isHeld, longestMs } = await tryStreams(target, count, windowMs);
    if (isHeld) [held, heldMs] = [count, longestMs];
    else failed = count;
    return isHeld;
  };
  // Most hold 128: fewer are tried where these are not held.
  for (const step of (await attempt(128)) ? STEPS.slice(3) : STEPS.slice(0, 2)) if (!(await attempt(step))) break;
  for (let halving = 0; halving < HALVINGS && held > 0 && failed - held > 16; halving += 1) {
    await attempt(Math.round((held + failed) / 2));
  }
  return { [HELD]: held, "longest gap there, ms": heldMs };
}

export const sustained: Row = {
  name: "Streams of 64 deltas at 20 ms, one core",
  metrics: { [HELD]: 0, "longest gap there, ms": 0 },
  hasRatios: false,
  measure,
};
