import { ApiError } from "@responses-edge/responses-api/errors";
import { assumedDialect } from "../model-lists.ts";
import type { ModelServer } from "../model-server.ts";
/**
 * The board's reports that this isolate has: the state of the servers when they were last asked, by an object that all
 * isolates read. Plain data. No turn waits for a report: it uses the present one.
 */

/** The state of a server. */
export interface ServerReport {
  /** The server's name. */
  name: string;
  /** It did not report in time that it is healthy. */
  isDown: boolean;
  /** Its running and waiting requests, from any sender; undefined if it does not report them. */
  load: number | undefined;
  /** Those of them that wait; undefined also in reports of earlier versions. */
  waiting?: number | undefined;
}

export interface BoardReport {
  /** When the servers were asked. Unix milliseconds. */
  at: number;
  servers: ServerReport[];
}

/** Reports older than this many intervals, plus the time of asking, are ignored. */
const MAX_AGE_INTERVALS = 4;
const ASKING_MS = 5_000;

const reports = new Map<string, ServerReport>();
let reportedAt = Number.NEGATIVE_INFINITY;
let heardAt = Number.NEGATIVE_INFINITY;

/** Tells whether the caller must read the board's report now. Only one of two concurrent requests must. */
export function mustReadBoard(now: number, everyMs: number): boolean {
  const isDue = Math.abs(now - heardAt) >= everyMs;
  if (isDue) heardAt = now;
  return isDue;
}

export function noteReport({ at, servers }: BoardReport): void {
  reportedAt = at;
  reports.clear();
  for (const server of servers) reports.set(server.name, server);
}

/** The latest state of a server; undefined without a recent report. */
export function reportOf(name: string, now: number, everyMs: number): ServerReport | undefined {
  return Math.abs(now - reportedAt) <= MAX_AGE_INTERVALS * everyMs + ASKING_MS ? reports.get(name) : undefined;
}

/** The longest wait for a server's health and load. In milliseconds. */
const ANSWER_MS = 2_000;

/** Asks a server for its state: `/health`, and the gauges of `/metrics`. Does not throw. */
export async function askState(server: ModelServer): Promise<ServerReport> {
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
    return {
      name,
      isDown: false,
      load: undefined,
      ...(gauges && loadIn(await server.text(metrics, signal, ANSWER_MS), gauges)),
    };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { name, isDown: false, load: undefined };
  }
}

/**
 * The running and waiting requests, and the waiting ones, from the text of a server's metrics (Prometheus); undefined without such gauges.
 */
export function loadIn(metrics: string, gauges: RegExp): { load: number; waiting: number } | undefined {
  const lines = [...metrics.matchAll(gauges)].map(([, waits, value]) => ({ waits, value: Number(value) }));
  if (lines.length === 0) return undefined;
  const sum = (some: typeof lines) => some.reduce((total, { value }) => total + value, 0);
  return { load: sum(lines), waiting: sum(lines.filter(({ waits }) => waits !== undefined)) };
}
