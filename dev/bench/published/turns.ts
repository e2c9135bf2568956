import { CHAIN_MODEL, CHAIN_USER, type Chain, isStored, messagesOf } from "../chains.ts";
import { Connection, type Request } from "../load.ts";
import { exactCpuSeconds } from "../processes.ts";
import { median, quantile } from "../tables.ts";
import type { Measurement, Row, Scale, Target, Upstream } from "../targets.ts";

/**
 * A turn late in a conversation, one client: by the id of the stored turn before it, and with the whole history resent.
 * Each request is another branch from the same turn, so that the work stays the same.
 */

export const DEPTHS = [5, 25, 200, 1_000] as const;

export const FIRST_DELTA = "first delta p50 ms";
export const TURN_CPU = "CPU µs";
const [UP, DOWN, HISTORY] = ["kB from the client", "kB to the client", "% of the messages at the model server"];

/** A row for each depth and way. `chains` has the chain of each target that stores. */
export function turnRows(upstream: Upstream, chains: ReadonlyMap<string, Chain>): Row[] {
  const [resent = { ids: [], history: [] }] = [...chains.values()].sort(
    (one, other) => other.ids.length - one.ids.length,
  );
  const row = (name: string, requestOf: (target: Target) => Request | undefined, depth: number): Row => ({
    name,
    metrics: { [FIRST_DELTA]: 2, [TURN_CPU]: 0, [UP]: 1, [DOWN]: 1, [HISTORY]: 0 },
    hasRatios: false,
    async measure(target, scale): Promise<Measurement> {
      const request = requestOf(target);
      if (request === undefined) return {};
      return measureTurns(upstream, target, request, 2 * depth - 1, scale);
    },
  });
  return DEPTHS.flatMap((depth) => [
    row(
      `Turn ${depth.toLocaleString("en-US")} by id`,
      (target) => {
        const previous = isStored(target) ? chains.get(target.name)?.ids[depth - 2] : undefined;
        if (previous === undefined) return undefined;
        return target.request({ model: CHAIN_MODEL, stream: true, history: [CHAIN_USER], previous });
      },
      depth,
    ),
    row(
      `Turn ${depth.toLocaleString("en-US")} resent`,
      (target) => {
        const history = [...messagesOf(resent, depth - 1), CHAIN_USER];
        return target.request({ model: CHAIN_MODEL, stream: true, history });
      },
      depth,
    ),
  ]);
}

async function measureTurns(
  upstream: Upstream,
  { port, pid }: Target,
  request: Request,
  messages: number,
  { warmUpMs, windowMs }: Scale,
): Promise<Measurement> {
  const connection = await Connection.open(port);
  const firsts: number[] = [];
  const received: number[] = [];
  let bytes = 0;
  connection.onBytes = (data) => {
    bytes += data.length;
  };
  const repeat = async (durationMs: number) => {
    for (const begun = performance.now(); performance.now() - begun < durationMs; ) {
      bytes = 0;
      const { firstNeedleMs } = await connection.send(request);
      firsts.push(firstNeedleMs);
      received.push(bytes);
    }
  };
  try {
    await repeat(warmUpMs);
    firsts.length = 0;
    const before = exactCpuSeconds(pid);
    await repeat(windowMs);
    const micros = ((exactCpuSeconds(pid) - before) * 1e6) / firsts.length;
    await connection.send(request);
    const arrived = Math.min(1, (await upstream.log()).messages / messages);
    // A turn without its history is another, cheaper one.
    if (arrived < 1) return { [HISTORY]: arrived * 100 };
    return {
      [FIRST_DELTA]: quantile(firsts, 0.5),
      [TURN_CPU]: micros,
      [UP]: request.bytes.length / 1_000,
      [DOWN]: median(received) / 1_000,
      [HISTORY]: 100,
    };
  } finally {
    connection.close();
  }
}
