import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { turnsBesideClients, workUnderWay } from "../limits/permits.ts";
import type { RunSpec } from "./run-store.ts";

/**
 * Background runs with a later completion window (`background_options`): `2h` waits for the foreground turns of this process, `8h` also
 * for its other runs. After half of its window a run no longer waits, so that it may complete within the window.
 */

type Window = "2h" | "8h";

const WINDOW_MS: Record<Window, number> = { "2h": 2 * 3_600_000, "8h": 8 * 3_600_000 };

/** How often a waiting run looks for capacity. Milliseconds. */
const POLL_MS = 250;

/** Most runs with a later window that run at a time in this process, without those that no longer wait. */
const MAX_AT_ONCE = 16;

/** The most recent `continuation_id`s that are known. */
const MAX_CONTINUATIONS = 1_000;

interface Deferred {
  readonly window: Window;
  readonly tenant: string;
  /** The client's name for requests that belong together, within its tenant. */
  readonly continuation: string | undefined;
  /** Unix milliseconds. */
  readonly since: number;
}

const waiting = new Set<Deferred>();
const running = new Set<Deferred>();
/** Those of which a run has begun, oldest first. */
const continued = new Set<string>();

/** The completion window of a request; undefined if it begins at once. */
export function windowOf({ background_options: options }: CreateRequest): Window | undefined {
  const window = options?.completion_window;
  return window == null || window === "soonest" ? undefined : window;
}

/**
 * Resolves when a run may begin, which is at once without a later window, or when `signal` is aborted. The result, if there is one, is to be
 * disposed of at the end of the run.
 */
export async function whenDue(
  { request, tenant, createdAt }: RunSpec,
  signal: AbortSignal,
): Promise<Disposable | undefined> {
  const window = windowOf(request);
  if (!window) return undefined;
  const id = request.background_options?.continuation_id;
  const run: Deferred = {
    window,
    tenant,
    continuation: id == null ? undefined : `${tenant}\n${id}`,
    since: createdAt,
  };
  waiting.add(run);
  const latest = createdAt + WINDOW_MS[window] / 2;
  while (!signal.aborted && Date.now() < latest && !isDue(run)) await scheduler.wait(POLL_MS);
  waiting.delete(run);
  running.add(run);
  if (run.continuation !== undefined) noteContinuation(run.continuation);
  return { [Symbol.dispose]: () => running.delete(run) };
}

function noteContinuation(id: string): void {
  continued.delete(id);
  continued.add(id);
  const [oldest] = continued;
  if (continued.size > MAX_CONTINUATIONS && oldest !== undefined) continued.delete(oldest);
}

function isDue(run: Deferred): boolean {
  if (turnsBesideClients() > 0) return false;
  const isLast = run.window === "8h";
  if (isLast) {
    const runs = workUnderWay().get("run") ?? 0;
    const others = [...waiting, ...running].filter(({ window }) => window === "8h").length;
    if (runs > others) return false;
  }
  let before = running.size;
  for (const other of waiting) if (other !== run && isBefore(other, run)) before += 1;
  return before < MAX_AT_ONCE;
}

/** Tells whether a waiting run begins before another one. */
function isBefore(one: Deferred, other: Deferred): boolean {
  if (one.window !== other.window) return one.window === "2h";
  const [related, otherRelated] = [isRelated(one), isRelated(other)];
  if (related !== otherRelated) return related;
  const [share, otherShare] = [runningOf(one.tenant), runningOf(other.tenant)];
  return share === otherShare ? one.since < other.since : share < otherShare;
}

/** Tells whether a run belongs to one that has begun lately, whose prompt the model server may still have cached. */
function isRelated({ continuation }: Deferred): boolean {
  return continuation !== undefined && continued.has(continuation);
}

function runningOf(tenant: string): number {
  let count = 0;
  for (const run of running) if (run.tenant === tenant) count += 1;
  return count;
}
