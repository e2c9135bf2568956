import { setTimeout as sleep } from "node:timers/promises";
import { untilIdle } from "./coming.ts";
import { Connection } from "./load.ts";
import { cpuSeconds } from "./processes.ts";
import type { Target } from "./targets.ts";

/** Streams that are open at the same time. */

export interface Streams {
  /** The number of streams. Where one ends before the measurement, another one begins. */
  count: number;
  model: string;
  /** All have begun after this time. */
  rampMs: number;
  /** After this time more the measurement begins. */
  settleMs: number;
  windowMs: number;
}

export interface OpenStreams {
  /** The times between two reads of a stream that bring deltas, and from the last one to the end of the measurement. */
  gaps: number[];
  /** The deltas that came in the window. */
  came: number;
  cpuSeconds: number;
}

/**
 * Opens streams and looks at them for a while. `atEnd` is called before they are closed.
 *
 * @throws if one of them fails
 */
export async function watchStreams(
  target: Target,
  { count, model, rampMs, settleMs, windowMs }: Streams,
  atEnd: () => void = () => {},
): Promise<OpenStreams> {
  const request = target.request({ model, stream: true });
  const connections = new Set<Connection>();
  const lasts = new Map<Connection, number>();
  const watched: OpenStreams = { gaps: [], came: 0, cpuSeconds: 0 };
  let isWatched = false;
  let isOver = false;
  let failure: unknown;
  const repeat = async (index: number) => {
    await sleep((rampMs * index) / count);
    const connection = await Connection.open(target.port);
    connections.add(connection);
    connection.onNeedles = (needles) => {
      const now = performance.now();
      const last = lasts.get(connection);
      lasts.set(connection, now);
      if (!isWatched) return;
      watched.came += needles;
      if (last !== undefined) watched.gaps.push(now - last);
    };
    while (!isOver) {
      await connection.send(request);
      lasts.delete(connection);
    }
  };
  const repeated = Array.from({ length: count }, (_, index) =>
    repeat(index).catch((error: unknown) => {
      if (!isOver) failure ??= error;
    }),
  );
  await sleep(rampMs + settleMs);
  const cpu = cpuSeconds(target.pid);
  isWatched = true;
  await sleep(windowMs);
  isWatched = false;
  watched.cpuSeconds = cpuSeconds(target.pid) - cpu;
  const ended = performance.now();
  for (const last of lasts.values()) watched.gaps.push(ended - last);
  atEnd();
  isOver = true;
  for (const connection of connections) connection.close();
  await Promise.all(repeated);
  await untilIdle(target.pid);
  if (failure !== undefined) throw failure;
  return watched;
}
