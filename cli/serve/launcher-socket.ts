import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { ClientRequest, IncomingMessage } from "node:http";
import { connect } from "node:net";
import { json } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import type { Suspect } from "../../src/store/objects/process-state.ts";

/** The connection between the launcher and a Worker's process: a Unix socket (`src/http/launcher.ts`). */

// An import of `node:http` has Node load its `fetch`, too, which takes about as long as the start of Node itself.
const { request } = process.getBuiltinModule("node:http");

/** The answer of a Worker's process to every command. */
export interface WorkerState {
  /** The number of foreground turns, and of their streams that have not been sent to their end. */
  turns: number;
  /** The number of streams whose header has been sent. */
  streams: number;
  /** The answer to `/configuration`: the errors of the configuration. */
  mistakes?: readonly string[];
  /** The answer to `/suspects`: objects that have failed since the last request. */
  suspects?: readonly Suspect[];
  /** The answer to `/close`: what the next process needs beside the data folder. */
  carried?: unknown[];
}

/** The launcher's timeout for a Worker's answer. Milliseconds. */
const TIMEOUT_MS = 5_000;

/** Sends a Worker a command, or with an empty path a health check. Rejects if it does not answer in time. */
export async function askLauncher(
  socketPath: string,
  path = "",
  body: unknown = null,
  timeoutMs = TIMEOUT_MS,
): Promise<WorkerState> {
  const method = path === "" ? "GET" : "POST";
  const asked = begun(socketPath, path, method, timeoutMs);
  asked.end(method === "POST" ? JSON.stringify(body) : undefined);
  return (await json(await begunAnswer(asked))) as WorkerState;
}

/** Begins a request. `timeoutMs` limits each silence. */
function begun(socketPath: string, path: string, method: string, timeoutMs: number): ClientRequest {
  const asked = request({ socketPath, path: `/${path}`, method, agent: false, timeout: timeoutMs });
  asked.on("timeout", () => asked.destroy(new Error("no answer")));
  return asked;
}

/** The answer to a request when its header has come. */
async function begunAnswer(asked: ClientRequest): Promise<IncomingMessage> {
  const [answer] = (await once(asked, "response")) as [IncomingMessage];
  if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`);
  return answer;
}

/**
 * Retires a Worker: `stopAccepting` makes its process accept no more connections, and only after it has stopped does the Worker release
 * the answers that it holds, so that the clients' next requests go to another process. Resolves then. `reported` resolves when the usage
 * of all its turns is reported, or with the end of the process, which does not end before. Rejects if the Worker does not answer.
 */
export async function retire(
  socketPath: string,
  stopAccepting: () => Promise<void>,
): Promise<{ reported: Promise<void> }> {
  // workerd accepts this connection before the next one, and closes it, because it has no request, when it stops accepting.
  const idle = connect(socketPath);
  const hasStopped = once(idle.resume(), "close").catch(() => {});
  const asked = begun(socketPath, "retire", "POST", TIMEOUT_MS);
  try {
    asked.flushHeaders();
    const answer = await begunAnswer(asked);
    answer.socket.setTimeout(0);
    const reported = once(answer.resume(), "close").then(
      () => {},
      () => {},
    );
    await stopAccepting();
    await Promise.race([hasStopped, sleep(TIMEOUT_MS, undefined, { ref: false })]);
    return { reported };
  } finally {
    // Its end releases the answers.
    asked.end();
    idle.destroy();
  }
}

/** The interval at which the Worker is asked whether its turns have ended. Milliseconds. */
const DRAIN_POLL_MS = 100;

/**
 * Lets the Worker refuse new requests, and waits until no foreground turn runs, and the usage of all is reported. Rejects if it does
 * not answer.
 */
export async function untilDrained(socketPath: string): Promise<void> {
  for (let state = await askLauncher(socketPath, "end"); state.turns > 0; state = await askLauncher(socketPath)) {
    await sleep(DRAIN_POLL_MS);
  }
}

/** The times of health checks, in milliseconds, and the number of failures in a row: a Worker that hangs is found within 15 s. */
const CHECKS = { intervalMs: 2_000, timeoutMs: TIMEOUT_MS, misses: 2 };

/** A thread that reads and writes so often between two checks does not hang: it has more work than it can do. */
const LEAST_CALLS = 20;

/** So many checks in a row without an answer end a process that has too much work, too: about two minutes. */
const MAX_MISSES = 20;

/**
 * Checks the Worker's health again and again, and sends it measurements. `calls`: the number of reads and writes that the process has made,
 * undefined where the system does not count them. Resolves with true when the Worker does not answer any more, or with false when the
 * signal is aborted.
 */
export async function untilHung(
  socketPath: string,
  { measured, calls }: { measured: () => Promise<object>; calls: () => number | undefined },
  signal: AbortSignal,
  { intervalMs, timeoutMs, misses: fewMisses } = CHECKS,
): Promise<boolean> {
  let before = calls();
  for (let misses = 0, still = 0; still < fewMisses && misses < MAX_MISSES; ) {
    await sleep(intervalMs, undefined, { ref: false, signal }).catch(() => {});
    if (signal.aborted) return false;
    const answers = await askLauncher(socketPath, "measures", await measured(), timeoutMs).then(
      () => true,
      () => false,
    );
    const now = calls();
    const isWorking = now !== undefined && before !== undefined && now - before >= LEAST_CALLS;
    before = now;
    misses = answers ? 0 : misses + 1;
    still = answers || isWorking ? 0 : still + 1;
  }
  return !signal.aborted;
}

/** The reads and writes that a process has made; undefined where the system does not count them. */
export function callsOf(pid: number | undefined): number | undefined {
  try {
    const counts = readFileSync(`/proc/${pid}/io`, "latin1").matchAll(/^sysc[rw]: (\d+)$/gm);
    return counts.reduce((sum, [, count]) => sum + Number(count), 0);
  } catch {
    return undefined;
  }
}
