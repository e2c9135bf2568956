import { setTimeout as sleep } from "node:timers/promises";
import { Connection } from "./load.ts";
import { cpuSeconds } from "./processes.ts";
import { quantile } from "./tables.ts";
import type { Measurement, Row, Target } from "./targets.ts";

/** Short streams that come and go: a fixed number begins each second, and each ends after a while. */

/** How many streams begin each second. */
const RATES = [400, 200] as const;
const TOKENS = 64;
const TOKEN_MS = 20;

/** A token that arrives more than this after its time counts as late. */
const IN_TIME_MS = 200;

/** The duration of a stream. At 400 a second, 512 streams are open once the first ones have ended. */
const STREAM_MS = TOKENS * TOKEN_MS;

/** Streams that are still open this long after the last one began are aborted. */
const PATIENCE_MS = 5_000;

export const COMING_MODEL = `simulator?words=${TOKENS}&tps=${1000 / TOKEN_MS}`;

export const IN_TIME = "share of the tokens within 200 ms";

export const coming = RATES.map(
  (rate): Row => ({
    name: `Streams that come and go: ${rate} a second of ${TOKENS} tokens at ${TOKEN_MS} ms, ${(rate * STREAM_MS) / 1000} open`,
    metrics: {
      [IN_TIME]: 2,
      "gap p99 ms": 0,
      "first event p99 ms": 0,
      "CPU µs / delta": 0,
    },
    hasRatios: false,
    measure: (target, { windowMs }) => measureComing(target, rate, windowMs),
  }),
);

/** The next measurement waits until the target has finished its work for aborted streams: at most this many rests. */
const REST_MS = 200;
const MAX_RESTS = 100;

/**
 * Begins streams at a steady rate, and measures those that begin once the number of open streams is constant. A token
 * is in time if it arrives within 200 ms of the time at which a direct client would get it. A gap is the time between
 * two reads of a stream that bring deltas.
 */
async function measureComing(target: Target, rate: number, windowMs: number): Promise<Measurement> {
  const request = target.request({ model: COMING_MODEL, stream: true });
  const free: Connection[] = [];
  const all = new Set<Connection>();
  const firstEvents: number[] = [];
  const gaps: number[] = [];
  let looked = 0;
  let inTime = 0;
  let came = 0;
  const stream = async (isLookedAt: boolean) => {
    const begun = performance.now();
    if (isLookedAt) looked += 1;
    const connection = free.pop() ?? (await Connection.open(target.port));
    all.add(connection);
    let told = 0;
    let last: number | undefined;
    connection.onFirstByte = () => {
      if (isLookedAt) firstEvents.push(performance.now() - begun);
    };
    connection.onNeedles = (count) => {
      const now = performance.now();
      came += count;
      if (isLookedAt) {
        if (last !== undefined) gaps.push(now - last);
        for (const end = told + count; told < end; told += 1) {
          if (now - begun <= told * TOKEN_MS + IN_TIME_MS) inTime += 1;
        }
      }
      last = now;
    };
    await connection.send(request);
    free.push(connection);
  };
  const streams: Promise<void>[] = [];
  const begun = performance.now();
  const lookFrom = (rate * STREAM_MS) / 1000;
  const count = lookFrom + (rate * 2 * windowMs) / 1000;
  let before = { cpu: 0, came: 0 };
  while (streams.length < count) {
    const due = ((performance.now() - begun) * rate) / 1000;
    while (streams.length < Math.min(due, count)) {
      if (streams.length === lookFrom) before = { cpu: cpuSeconds(target.pid), came };
      const each = stream(streams.length >= lookFrom);
      each.catch(() => {});
      streams.push(each);
    }
    await sleep(1);
  }
  const cpuMicros = (cpuSeconds(target.pid) - before.cpu) * 1e6;
  const perDelta = cpuMicros / (came - before.came);
  await Promise.race([Promise.allSettled(streams), sleep(STREAM_MS + PATIENCE_MS)]);
  for (const connection of all) connection.close();
  await Promise.allSettled(streams);
  await untilIdle(target.pid);
  return {
    [IN_TIME]: inTime / (looked * TOKENS),
    "gap p99 ms": quantile(gaps, 0.99),
    "first event p99 ms": firstEvents.length < looked ? Number.POSITIVE_INFINITY : quantile(firstEvents, 0.99),
    "CPU µs / delta": perDelta,
  };
}

/** Waits until a process is almost idle. */
export async function untilIdle(pid: number): Promise<void> {
  for (let rest = 0, before = cpuSeconds(pid); rest < MAX_RESTS; rest += 1) {
    await sleep(REST_MS);
    const now = cpuSeconds(pid);
    if ((now - before) * 1000 < REST_MS / 10) return;
    before = now;
  }
}
