import { ApiError } from "../protocol/errors.ts";
import { assumedDialect } from "./model-lists.ts";
import type { ModelServer } from "./model-server.ts";
import type { ServerReport } from "./pool/board-view.ts";

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
