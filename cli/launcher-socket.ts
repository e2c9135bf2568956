import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { json } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import type { Suspect } from "../src/store/process-state.ts";

/** How the launcher speaks with a Worker's process: on a Unix socket of its own (`src/http/launcher.ts`). */

/** The answer of a Worker's process to every command. */
export interface WorkerState {
  /** How many turns run beside their clients. */
  turns: number;
  /** The number of objects that a predecessor still has. */
  kept?: number;
  /** Objects that it has given up since the last answer. */
  released?: string[];
  /** Objects of its successor whose alarms have rung in it. */
  rung?: string[];
  /** The answer to `/configuration`: what is wrong with it. */
  mistakes?: readonly string[];
  /** The answer to `/suspects`: objects that have failed since it was asked last. */
  suspects?: readonly Suspect[];
  /** The answer to `/give`: the objects that it keeps, with the names of their files. */
  keeps?: { key: string; file: string }[];
}

/** A Worker that does not answer its launcher for so long is not waited for. Milliseconds. */
const TIMEOUT_MS = 5_000;

/** Tells a Worker something, or with an empty path nothing. Rejects where it does not answer in time. */
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

/** How often the Worker is asked whether its turns have ended. */
const DRAIN_LOOK_MS = 100;

/** Has the Worker refuse new requests, and waits until no turn runs beside its client. Rejects where it does not answer. */
export async function untilDrained(socketPath: string): Promise<void> {
  for (let state = await askLauncher(socketPath, "end"); state.turns > 0; state = await askLauncher(socketPath)) {
    await sleep(DRAIN_LOOK_MS);
  }
}

/** How often it is asked whether it is still there, and how often in a row it may not answer: one that hangs is found within 15 s. */
const PROBE_MS = 2_000;
const MAX_MISSES = 2;

/**
 * Asks the Worker again and again whether it is there, and tells it what is measured. Resolves when it does not answer any more: true; or when
 * the signal is aborted: false.
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
