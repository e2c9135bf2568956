import type { LastLine } from "../../src/contract/file-reading.ts";
import type { ReaderProcess, Used } from "./reader-process.ts";

/** The bounds of one file's reading, in which code of others runs: beyond them its process is killed. */

/** How often a process is looked at while it reads. Milliseconds. */
const LOOK_MS = 100;

/** The time without a sign of life: of a processor, and by the clock. A busy machine may give the process little. Milliseconds. */
const SILENT_CPU_MS = 5_000;
const SILENT_MS = 60_000;

/** The time for the whole file, by the same measures. Milliseconds. */
const FILE_CPU_MS = 120_000;
const FILE_MS = 600_000;

/** The resident memory of the process, with the file's bytes and all that they expand to. Bytes. */
const MEMORY = 768 * 1024 * 1024;

/** The use of the machine for a file; times in milliseconds. `silent`: since its last sign of life. */
export interface Spent {
  ms: number;
  cpuMs: number;
  silentMs: number;
  silentCpuMs: number;
  memory: number;
}

export type Bound = "time" | "memory";

/** The bound that was passed. */
export function passedBound({ ms, cpuMs, silentMs, silentCpuMs, memory }: Spent): Bound | undefined {
  if (memory > MEMORY) return "memory";
  const isSilent = silentMs > SILENT_MS || silentCpuMs > SILENT_CPU_MS;
  return isSilent || ms > FILE_MS || cpuMs > FILE_CPU_MS ? "time" : undefined;
}

/** The last line for a file that passed a bound. */
export function refusalOf(bound: Bound): LastLine {
  return { unreadable: { code: "too_large", message: `The file takes too much ${bound} to read.` } };
}

/** Looks at a process while it reads a file, until `signal` is aborted. Resolves with the bound that was passed, if one was. */
export async function untilBound(reader: ReaderProcess, signal: AbortSignal): Promise<Bound | undefined> {
  const began = await moment(reader);
  let alive = began;
  let isAsked = false;
  const { promise, resolve } = Promise.withResolvers<Bound | undefined>();
  const look = async () => {
    const now = await moment(reader);
    if (!isAsked) {
      isAsked = true;
      const answered = () => {
        isAsked = false;
        void moment(reader).then((then) => (alive = then));
      };
      // A process that has ended is not silent: its file's answer breaks off.
      reader.untilFree().then(answered, answered);
    }
    const bound = passedBound({
      ms: now.ms - began.ms,
      cpuMs: now.cpuMs - began.cpuMs,
      silentMs: now.ms - alive.ms,
      silentCpuMs: now.cpuMs - alive.cpuMs,
      memory: now.memory,
    });
    if (bound) resolve(bound);
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

async function moment(reader: ReaderProcess): Promise<Required<Used> & { ms: number }> {
  const { cpuMs = 0, memory = 0 } = await reader.used();
  return { ms: performance.now(), cpuMs, memory };
}
