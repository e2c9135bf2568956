import { type ChildProcess, type SpawnOptions, spawn, spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";

/** Processes under measurement: starts them on a core of their own, and reads their figures from /proc. */

const CLOCK_TICKS = Number(spawnSync("getconf", ["CLK_TCK"], { encoding: "utf8" }).stdout) || 100;
// Not availableParallelism(): that counts only the cores that this process may use once it is pinned.
const CORES = cpus().length;
const canPin = CORES > 1 && spawnSync("taskset", ["-V"]).status === 0;

/** The gateway has its own core. The model server and the client share the other one. */
export const GATEWAY_CORE = 0;
export const OTHER_CORE = 1;

const running = new Set<ChildProcess>();
/** Processes that those have started, and that are measured. */
const grandchildren = new Set<number>();
/** CPU seconds of stopped processes. */
let stoppedCpu = 0;
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/** Cores for a gateway of two workers, beside that of the model server and the client. Undefined if there are too few. */
export const TWO_CORES = CORES > 2 ? `${GATEWAY_CORE},2` : undefined;

/** Starts a program on a core, or on several (`0,2`). */
export function start(
  command: string,
  args: readonly string[],
  core: number | string,
  options: SpawnOptions = {},
): ChildProcess {
  const whole = canPin ? ["taskset", "-c", String(core), command, ...args] : [command, ...args];
  const [program = "", ...rest] = whole;
  const child = spawn(program, rest, { stdio: ["ignore", "pipe", "inherit"], ...options });
  running.add(child);
  child.on("exit", () => running.delete(child));
  return child;
}

/** Pins this process (the client) to the core that it shares with the model server. */
export function pinSelf(): boolean {
  return canPin && spawnSync("taskset", ["-a", "-cp", String(OTHER_CORE), String(process.pid)]).status === 0;
}

export async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  if (child.pid !== undefined) stoppedCpu += cpuSeconds(child.pid);
  const gone = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await gone;
}

/** `kill -9` of a process and of those that it has started, which would outlive it. */
export async function stopTree(child: ChildProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const children = descendantsOf(child.pid);
  await stop(child);
  for (const pid of children) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It has ended with its parent.
    }
  }
}

/** Counts a process that another one has started as the benchmark's own. The returned function kills it. */
export function adopt(pid: number): () => void {
  grandchildren.add(pid);
  return () => {
    grandchildren.delete(pid);
    stoppedCpu += cpuSeconds(pid);
    process.kill(pid, "SIGKILL");
  };
}

/** CPU seconds that a process has used, all threads, user and system. */
export function cpuSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS;
}

/** CPU seconds of the process's present threads, to the nanosecond rather than the clock tick, for single actions. */
export function exactCpuSeconds(pid: number): number {
  const tasks = `/proc/${pid}/task`;
  let nanoseconds = 0;
  for (const task of readdirSync(tasks)) {
    nanoseconds += Number(readFileSync(`${tasks}/${task}/schedstat`, "latin1").split(" ", 1)[0]);
  }
  return nanoseconds / 1e9;
}

/** Resident memory in MB: now, and at its highest. */
export function memoryMb(pid: number): { now: number; peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, "latin1");
  const read = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1] ?? 0) / 1024;
  return { now: read("VmRSS"), peak: read("VmHWM") };
}

/** Resident memory in MB of a process and all that it has started. Pages that two of them share count twice. */
export function treeMemoryMb(pid: number): number {
  return memoryMb(pid).now + childrenOf(pid).reduce((sum, child) => sum + treeMemoryMb(child), 0);
}

/** The processes that a process has started and that still run. */
export function childrenOf(pid: number): number[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    (readFileSync(`/proc/${pid}/task/${task}/children`, "latin1").match(/\d+/g) ?? []).map(Number),
  );
}

function descendantsOf(pid: number): number[] {
  return childrenOf(pid).flatMap((child) => [child, ...descendantsOf(child)]);
}

/** CPU seconds that the whole machine has been busy. */
function machineCpuSeconds(): number {
  const [, user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] =
    readFileSync("/proc/stat", "latin1").split("\n", 1)[0]?.split(/\s+/).map(Number) ?? [];
  return (user + nice + system + irq + softirq) / CLOCK_TICKS;
}

/** CPU seconds of this process and of those that it started. */
function ownCpuSeconds(): number {
  const pids = [process.pid, ...[...running].flatMap(({ pid }) => pid ?? []), ...grandchildren];
  return pids.reduce((sum, pid) => sum + cpuSeconds(pid), stoppedCpu);
}

/**
 * Starts to measure other work on the machine. The returned function gives the share of the CPU that other processes
 * have used since.
 */
export function watchNoise(): () => number {
  const begun = { at: performance.now(), machine: machineCpuSeconds(), own: ownCpuSeconds() };
  return () => {
    const seconds = (performance.now() - begun.at) / 1000;
    const others = machineCpuSeconds() - begun.machine - (ownCpuSeconds() - begun.own);
    return Math.max(0, others / (seconds * CORES));
  };
}

export function machineLine(): string {
  const gib = Math.round(totalmem() / 2 ** 30);
  const model = cpus()[0]?.model.trim() ?? "unknown CPU";
  const when = new Date().toISOString().slice(0, 16);
  return `${when} UTC · ${CORES} × ${model}, ${gib} GiB, Linux ${release()}, Node ${process.versions.node}`;
}
