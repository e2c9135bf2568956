import { Connection } from "./load.ts";
import { memoryMb } from "./processes.ts";
import type { Target } from "./targets.ts";

/** What an open stream takes of a process's memory. */

export const MEMORY_STREAMS = 1_000;

/** So slow that no process is busy with them, and so long that all are open at once. */
export const MEMORY_MODEL = "simulator?words=32&tps=2";

/** The same at once. */
export const MEMORY_WARM_UP = "simulator?words=32";

/** All streams take no longer, unless a target falls far behind. */
const LONGEST_MS = 60_000;

const SAMPLE_MS = 100;

/** Streams are begun so many at a time. */
const BATCH = 20;

/** A process that has done nothing yet has code to compile and a heap to grow: no stream is to blame for these. */
const WARM_UP_REQUESTS = 300;

/** Resident memory of a target that has answered some requests: idle, its highest with all streams open, and what a stream takes. */
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
    // Keeping what has ended takes memory, too, and is another matter.
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
    // Looked at below, once all have been begun.
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
