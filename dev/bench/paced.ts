import { Connection } from "./load.ts";
import { cpuSeconds } from "./processes.ts";
import { quantile } from "./statistics.ts";
import type { Target } from "./targets.ts";

/** Many streams at the same time, whose tokens arrive at a steady rate. */

const TOKENS_PER_SECOND = 50;

/** The time over which streams begin. */
const BEGINNING_MS = 500;

/** The time from the beginning of the last stream to the start of the measurement. */
const SETTLING_MS = 250;

/** More tokens than the run can stream: no stream ends by itself. */
export const PACED_MODEL = `simulator?words=300&tps=${TOKENS_PER_SECOND}`;

/** The next measurement waits until the target has finished its work for aborted streams: at most this many rests. */
const REST_MS = 200;
const MAX_RESTS = 100;

/**
 * Begins `streams` streams and measures all of them for a while. "In time" is the number of deltas that arrive in this
 * time, as a share of those that the model server should send: a gateway that falls behind delivers fewer. CPU is per
 * delivered delta.
 */
export async function measurePaced(target: Target, streams: number, { windowMs }: { windowMs: number }) {
  const request = target.request({ model: PACED_MODEL, stream: true });
  const connections = await Promise.all(Array.from({ length: streams }, () => Connection.open(target.port)));
  const firstEvents: number[] = [];
  const gaps: number[] = [];
  let deltas = 0;
  let isMeasuring = false;
  const begin = performance.now();
  const sent = connections.map(async (connection, index) => {
    await sleep((index * BEGINNING_MS) / streams);
    const start = performance.now();
    let last: number | undefined;
    connection.onFirstByte = () => firstEvents.push(performance.now() - start);
    connection.onNeedles = (count) => {
      const now = performance.now();
      if (isMeasuring && last !== undefined) gaps.push(now - last);
      if (isMeasuring) deltas += count;
      last = now;
    };
    await connection.send(request);
  });
  // All are aborted below.
  const ended = Promise.allSettled(sent);
  await sleep(begin + BEGINNING_MS + SETTLING_MS - performance.now());
  isMeasuring = true;
  const measuredFrom = performance.now();
  const before = cpuSeconds(target.pid);
  await sleep(2 * windowMs);
  isMeasuring = false;
  const seconds = (performance.now() - measuredFrom) / 1000;
  const cpuMicros = (cpuSeconds(target.pid) - before) * 1e6;
  for (const connection of connections) connection.close();
  await ended;
  await untilIdle(target.pid);
  return {
    "share in time": Math.min(1, deltas / (streams * TOKENS_PER_SECOND * seconds)),
    "gap p99 ms": quantile(gaps, 0.99),
    "first event p50 ms": quantile(firstEvents, 0.5),
    "first event p99 ms": firstEvents.length < streams ? Number.POSITIVE_INFINITY : quantile(firstEvents, 0.99),
    "CPU µs / delta": cpuMicros / deltas,
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

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
