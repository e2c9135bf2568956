import { Connection } from "./load.ts";
import { memoryMb } from "./processes.ts";
import type { Target } from "./targets.ts";

/** The memory that an open stream takes. */

export const MEMORY_STREAMS = 1_000;

/** The rate is so low that no process is busy, and the streams are so long that all are open at the same time. */
export const MEMORY_MODEL = "simulator?words=32&tps=2";

/** The same answer without a pace, for the first requests. */
export const MEMORY_WARM_UP = "simulator?words=32";

/** All streams end within this time, unless a target falls far behind. */
const LONGEST_MS = 60_000;

const SAMPLE_MS = 100;

/** Streams begin in groups of this size. */
const BATCH = 20;

/** A new process has code to compile and a heap to grow. This memory is not the streams'. */
const WARM_UP_REQUESTS = 300;

/**
 * The resident memory of a target that has answered some requests: idle, the highest with all streams open, and the
 * memory per stream.
 */
export async function measureMemory(target: Target): Promise<Record<string, number>> {
  const first = await Connection.open(target.port);
  for (let index = 0; index < WARM_UP_REQUESTS; index += 1) {
    await first.send(target.request({ model: MEMORY_WARM_UP, stream: true }));
  }
  first.close();
  const idle = memoryMb(target.pid).now;
  const request = target.request({ model: MEMORY_MODEL, stream: true });
  const connections: Connection[] = [];
  let begun = 0;
  let finished = 0;
  let open = 0;
  let atOnce = 0;
  const watch = setInterval(() => {
    atOnce = Math.max(atOnce, begun - finished);
    // Kept answers take memory too. They are measured elsewhere.
    if (finished === 0) open = Math.max(open, memoryMb(target.pid).now);
  }, SAMPLE_MS);
  const streams: Promise<void>[] = [];
  for (let index = 0; index < MEMORY_STREAMS; index += 1) {
    if (index % BATCH === 0) await new Promise((resolve) => setTimeout(resolve, SAMPLE_MS / 4));
    const connection = await Connection.open(target.port);
    connections.push(connection);
    connection.onFirstByte = () => {
      begun += 1;
    };
    const sent = connection.send(request).then(() => {
      finished += 1;
    });
    // Failures are checked below, after all streams have begun.
    sent.catch(() => {});
    streams.push(sent);
  }
  const slow = setTimeout(() => {
    for (const connection of connections) connection.close();
  }, LONGEST_MS);
  try {
    await Promise.all(streams);
  } finally {
    clearTimeout(slow);
    clearInterval(watch);
    for (const connection of connections) connection.close();
  }
  if (atOnce < MEMORY_STREAMS) throw new Error(`${target.name}: only ${atOnce} streams were open at once`);
  return { "idle MB": idle, "open MB": open, "kB / stream": ((open - idle) * 1024) / MEMORY_STREAMS };
}
