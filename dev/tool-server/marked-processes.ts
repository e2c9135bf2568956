import { readdirSync, readFileSync } from "node:fs";

/**
 * The variable that names the program of a process. A process that calls `setsid` leaves the process group but still
 * inherits the environment.
 */
export const MARKER = "RESPONSES_EDGE_TOOL";

const MARKED = new RegExp(`(?:^|\0)${MARKER}=([^\0]*)`);

/**
 * The ids of running processes that carry a marker, by its value: all, or until one marker has `enough`. Empty where
 * there is no /proc (macOS). `others`: ids without a marker, which are skipped. The function updates it.
 */
export function markedProcesses(
  enough = Number.POSITIVE_INFINITY,
  others: Set<number> = new Set(),
): Map<string, number[]> {
  const found = new Map<string, number[]>();
  const running = processIds();
  // The system may reuse an id for another process.
  const ended = others.difference(new Set(running));
  for (const pid of ended) others.delete(pid);
  for (const pid of running) {
    if (others.has(pid)) continue;
    const marker = markerOf(pid);
    if (marker === null) {
      others.add(pid);
      continue;
    }
    const pids = found.get(marker) ?? [];
    pids.push(pid);
    found.set(marker, pids);
    if (pids.length >= enough) break;
  }
  return found;
}

/** Processes and threads on this machine; null where there is no /proc. */
export function tasksOnMachine(): number | null {
  try {
    const [, tasks] = /\/(\d+)/.exec(readFileSync("/proc/loadavg", "latin1")) ?? [];
    return tasks === undefined ? null : Number(tasks);
  } catch {
    return null;
  }
}

function processIds(): number[] {
  try {
    return readdirSync("/proc")
      .map(Number)
      .filter((pid) => pid > 0);
  } catch {
    return [];
  }
}

function markerOf(pid: number): string | null {
  try {
    const environment = readFileSync(`/proc/${pid}/environ`, "latin1");
    return MARKED.exec(environment)?.[1] ?? null;
  } catch {
    // The process has ended, or belongs to another user.
    return null;
  }
}
