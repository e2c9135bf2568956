import { once } from "node:events";
import { readFile, rm } from "node:fs/promises";
import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders } from "node:http";
import { setPriority } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { endOf } from "./child-end.ts";
import { spawnServing } from "./encoded-config.ts";
import type { LogFormat } from "./log-lines.ts";
import { TASKS_SOCKET } from "./workerd.ts";

/** A process of workerd that does bounded tasks, and nothing else (`src/http/bounded-tasks.ts`). */

// As in `launcher-socket.ts`: without Node's `fetch`.
const { request } = process.getBuiltinModule("node:http");

export interface BoundedProcess {
  pid: number;
  /** Sends it a task. The caller writes the body. */
  ask(headers: OutgoingHttpHeaders): ClientRequest;
  /** Resolves as soon as its thread is free; rejects if it ends before. */
  untilFree(): Promise<void>;
  /** Its use of the machine. */
  used(): Promise<Used>;
  /** SIGKILL. */
  kill(): void;
  /** Resolves when it has ended. */
  ended: Promise<unknown>;
}

/** The use of the machine by a process, since its start. Only Linux tells. */
export interface Used {
  /** Time of a processor. Milliseconds. */
  cpuMs?: number;
  /** Resident memory. Bytes. */
  memory?: number;
}

/** Long enough for a start on a slow machine. */
const START_MS = 30_000;
const START_POLL_MS = 5;

/** Linux counts the time of processes in this unit. Milliseconds. */
const TICK_MS = 10;

/**
 * Starts a process. Resolves when it answers. Rejects if it does not; then nothing is left running.
 *
 * @param configFile The encoded configuration (`boundedConfig`). This call opens it before anything else happens.
 * @param socketPath The Unix socket on which it will take tasks.
 */
export async function startProcess(
  configFile: string,
  socketPath: string,
  { format, say }: { format: LogFormat; say(line: string): void },
): Promise<BoundedProcess> {
  const address = `--socket-addr=${TASKS_SOCKET}=unix:${socketPath}`;
  const child = spawnServing(configFile, [address], ["pipe", "pipe"], {
    isExperimental: true,
    // As the Worker's process, and without what the environment has.
    detached: true,
    env: {},
  });
  let hasEnded = false;
  const ended = endOf(child, format, say).finally(async () => {
    hasEnded = true;
    await rm(socketPath, { force: true });
  });
  ended.catch(() => {});
  const kill = () => void child.kill("SIGKILL");
  const untilFree = async () => {
    const asked = request({ socketPath, path: "/", agent: false });
    asked.end();
    const [answer] = (await once(asked, "response")) as [IncomingMessage];
    answer.resume();
  };
  const late = setTimeout(kill, START_MS).unref();
  while (
    !(await untilFree().then(
      () => true,
      () => false,
    ))
  ) {
    if (hasEnded) throw new Error("it has ended before it answered");
    await sleep(START_POLL_MS);
  }
  clearTimeout(late);
  // A task waits for its start.
  yieldToOthers(child.pid);
  const { pid = 0 } = child;
  return {
    ...{ pid, untilFree, kill, ended },
    ask: (headers) => request({ socketPath, path: "/", method: "POST", headers, agent: false }),
    used: () => usedBy(pid),
  };
}

/** A third of the Worker's share of a busy processor (nice(1)). */
const PRIORITY = 5;

/** Lets the Worker go first. */
function yieldToOthers(pid: number | undefined): void {
  try {
    if (pid !== undefined) setPriority(pid, PRIORITY);
  } catch {
    // It has ended already.
  }
}

async function usedBy(pid: number): Promise<Used> {
  const [stat, status] = await Promise.all(
    ["stat", "status"].map((name) => readFile(join("/proc", String(pid), name), "latin1").catch(() => "")),
  );
  // The name of the program, in brackets, may have spaces (proc(5)).
  const [user, system] = stat?.slice(stat.lastIndexOf(")")).split(" ").slice(12, 14).map(Number) ?? [];
  const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(status ?? "")?.[1];
  return {
    ...(user !== undefined && system !== undefined && { cpuMs: (user + system) * TICK_MS }),
    ...(kilobytes !== undefined && { memory: Number(kilobytes) * 1024 }),
  };
}
