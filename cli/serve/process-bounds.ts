import type { BoundedTask, PassedBound } from "../../src/contract/bounded-tasks.ts";
import type { BoundedProcess, Used } from "./bounded-process.ts";

/** The bounds of one task, in which code of others runs: beyond them its process is killed. */

/** How often a process is looked at while it does a task: meanwhile its memory may grow by a hundred megabytes. Milliseconds. */
const LOOK_MS = 25;

export interface Bounds {
  /** The time without a sign of life: of a processor, and by the clock. A busy machine may give the process little. Milliseconds. */
  silentCpuMs: number;
  silentMs: number;
  /** The time for the whole task, by the same measures. Milliseconds. */
  cpuMs: number;
  ms: number;
  /** The resident memory of the process, with the task's data and all that they expand to. Bytes. */
  memory: number;
}

const MIB = 1024 * 1024;

export type BoundsOfTasks = Readonly<Record<BoundedTask["type"], Bounds>>;

export const BOUNDS: BoundsOfTasks = {
  file: { silentCpuMs: 5_000, silentMs: 60_000, cpuMs: 120_000, ms: 600_000, memory: 768 * MIB },
  // It gives no sign of life before its end: its timers do not wait.
  program: { silentCpuMs: 3_000, silentMs: 60_000, cpuMs: 3_000, ms: 60_000, memory: 512 * MIB },
};

/** The use of the machine for a task; times in milliseconds. `silent`: since its last sign of life. */
export interface Spent {
  ms: number;
  cpuMs: number;
  silentMs: number;
  silentCpuMs: number;
  memory: number;
}

/** The bound that was passed. */
export function passedBound(spent: Spent, bounds: Bounds): PassedBound | undefined {
  if (spent.memory > bounds.memory) return "memory";
  const isSilent = spent.silentMs > bounds.silentMs || spent.silentCpuMs > bounds.silentCpuMs;
  return isSilent || spent.ms > bounds.ms || spent.cpuMs > bounds.cpuMs ? "time" : undefined;
}

/** Looks at a process while it does a task, until `signal` is aborted. Resolves with the bound that was passed, if one was. */
export async function untilBound(
  bounded: BoundedProcess,
  bounds: Bounds,
  signal: AbortSignal,
): Promise<PassedBound | undefined> {
  const began = await moment(bounded);
  let alive = began;
  let isAsked = false;
  const { promise, resolve } = Promise.withResolvers<PassedBound | undefined>();
  const look = async () => {
    const now = await moment(bounded);
    if (!isAsked) {
      isAsked = true;
      const answered = () => {
        isAsked = false;
        void moment(bounded).then((then) => (alive = then));
      };
      // A process that has ended is not silent: its task's answer breaks off.
      bounded.untilFree().then(answered, answered);
    }
    const spent = {
      ms: now.ms - began.ms,
      cpuMs: now.cpuMs - began.cpuMs,
      silentMs: now.ms - alive.ms,
      silentCpuMs: now.cpuMs - alive.cpuMs,
      memory: now.memory,
    };
    const passed = passedBound(spent, bounds);
    if (passed) resolve(passed);
  };
  const timer = setInterval(look, LOOK_MS);
  signal.addEventListener("abort", () => resolve(undefined));
  if (signal.aborted) resolve(undefined);
  try {
    return await promise;
  } finally {
    clearInterval(timer);
  }
}

async function moment(bounded: BoundedProcess): Promise<Required<Used> & { ms: number }> {
  const { cpuMs = 0, memory = 0 } = await bounded.used();
  return { ms: performance.now(), cpuMs, memory };
}
