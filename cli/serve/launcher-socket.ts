import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { json } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import type { Suspect } from "../../src/store/objects/process-state.ts";

/** The connection between the launcher and a Worker's process: a Unix socket (`src/http/launcher.ts`). */

// An import of `node:http` has Node load its `fetch`, too, which takes about as long as the start of Node itself.
const { request } = process.getBuiltinModule("node:http");

/** The answer of a Worker's process to every command. */
export interface WorkerState {
  /** The number of foreground turns. */
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
  const asked = request({ socketPath, path: `/${path}`, method, agent: false, timeout: timeoutMs });
  asked.on("timeout", () => asked.destroy(new Error("no answer")));
  asked.end(method === "POST" ? JSON.stringify(body) : undefined);
  const [answer] = (await once(asked, "response")) as [IncomingMessage];
  if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`);
  return (await json(answer)) as WorkerState;
}

/** The interval at which the Worker is asked whether its turns have ended. */
const DRAIN_POLL_MS = 100;

/** Lets the Worker refuse new requests, and waits until no foreground turn runs. Rejects if it does not answer. */
export async function untilDrained(socketPath: string): Promise<void> {
  for (let state = await askLauncher(socketPath, "end"); state.turns > 0; state = await askLauncher(socketPath)) {
    await sleep(DRAIN_POLL_MS);
  }
}

/** The interval of health checks, and the number of failures in a row: a Worker that hangs is found within 15 s. */
const PROBE_MS = 2_000;
const MAX_MISSES = 2;

/**
 * Checks the Worker's health again and again, and sends it measurements. Resolves with true when it does not answer any
 * more, or with false when the signal is aborted.
 */
export async function untilHung(
  socketPath: string,
  measured: () => Promise<object>,
  signal: AbortSignal,
): Promise<boolean> {
  for (let misses = 0; misses < MAX_MISSES; ) {
    await sleep(PROBE_MS, undefined, { ref: false, signal }).catch(() => {});
    if (signal.aborted) return false;
    const answers = await askLauncher(socketPath, "measures", await measured()).then(
      () => true,
      () => false,
    );
    misses = answers ? 0 : misses + 1;
  }
  return !signal.aborted;
}
