import { ApiError } from "@responses-edge/responses-api/errors";
import { assumedDialect } from "../model-lists.ts";
import type { ModelServer } from "../model-server.ts";
/**
 * The reports that this isolate has heard from the board: how the servers were when they were last asked, by an object that all isolates
 * hear. Plain data. Nobody waits for it: a turn goes by what is here.
 */

/** How a server was. */
export interface ServerReport {
  /** The server's name. */
  name: string;
  /** It did not say in time that it is well. */
  isDown: boolean;
  /** Requests that it had running and waiting, whoever sent them; undefined where it does not tell. */
  load: number | undefined;
}

export interface BoardReport {
  /** When the servers had been asked. Unix milliseconds. */
  at: number;
  servers: ServerReport[];
}

/** A report that is older than so many intervals, and the time that asking takes, is no news. */
const MAX_AGE_INTERVALS = 4;
const ASKING_MS = 5_000;

const reports = new Map<string, ServerReport>();
let reportedAt = Number.NEGATIVE_INFINITY;
let heardAt = Number.NEGATIVE_INFINITY;

/** Tells whether the board is to be heard again, which is then for the caller to do. Two requests at once do not both do it. */
export function mustHear(now: number, everyMs: number): boolean {
  const isDue = Math.abs(now - heardAt) >= everyMs;
  if (isDue) heardAt = now;
  return isDue;
}

export function noteReport({ at, servers }: BoardReport): void {
  reportedAt = at;
  reports.clear();
  for (const server of servers) reports.set(server.name, server);
}

/** How a server was of late; undefined where nobody has told. */
export function reportOf(name: string, now: number, everyMs: number): ServerReport | undefined {
  return Math.abs(now - reportedAt) <= MAX_AGE_INTERVALS * everyMs + ASKING_MS ? reports.get(name) : undefined;
}

/** How long a server may take to say that it is well, and how much it has to do. In milliseconds. */
const ANSWER_MS = 2_000;

/** Asks a server how it is: `/health`, and the gauges of `/metrics`. Does not throw. */
export async function askHowItIs(server: ModelServer): Promise<ServerReport> {
  const { name } = server.config;
  const { signal } = new AbortController();
  try {
    server.close(await server.request("//health", signal, undefined, { withinMs: ANSWER_MS }));
  } catch {
    return { name, isDown: true, load: undefined };
  }
  try {
    const metrics = await server.request("//metrics", signal, undefined, { withinMs: ANSWER_MS });
    const { gauges } = assumedDialect(server);
    return { name, isDown: false, load: gauges && loadIn(await server.text(metrics, signal, ANSWER_MS), gauges) };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { name, isDown: false, load: undefined };
  }
}

/** The requests that run and wait, by the text of a server's metrics (Prometheus); undefined where it has no such gauges. */
export function loadIn(metrics: string, gauges: RegExp): number | undefined {
  const values = [...metrics.matchAll(gauges)].map(([, value]) => Number(value));
  return values.length === 0 ? undefined : values.reduce((sum, value) => sum + value, 0);
}
