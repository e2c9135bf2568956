import { traceparent } from "@responses-edge/otlp";
import type { ToolExchange } from "./contract/engine.ts";
import { beginToolCall, endToolCall } from "./contract/measurements.ts";
import type { ToolOutcome } from "./contract/tool-session.ts";
import type { TurnOptions } from "./options.ts";
import type { TurnOutput } from "./turn-output.ts";

/** Runs the calls of a round that this server answers. */

/** Most concurrent calls of one round, and concurrent listings of tools. */
export const MAX_CONCURRENT_CALLS = 8;

/**
 * Runs the calls that wait for an answer. A call that was dispatched before a crash is run again only if that changes
 * nothing, because its progress is unknown. Rejects with the signal's reason when it is aborted; a tool's own failure
 * is an answer.
 */
export async function answerCalls(
  output: TurnOutput,
  { asked, model: { engine }, tools: { session }, host }: Pick<TurnOptions, "asked" | "model" | "tools" | "host">,
): Promise<void> {
  const { signal, sink, measured, clock } = host;
  const { state, calls, messages } = output;
  // Identifies the round, whose calls were made in parallel.
  const step = `${asked.address.turn}.${state.rounds}`;
  const dispatchedBefore = new Set(state.answering?.dispatched);

  await forEachAtOnce(calls.pending.values(), MAX_CONCURRENT_CALLS, async (call) => {
    let outcome: ToolOutcome | undefined;
    const isFirst = !dispatchedBefore.has(call.item);
    if (isFirst) {
      calls.start(call);
      // A tool's work cannot be undone.
      if (sink?.commit) sink.commit();
      else sink?.flush();
    }
    if (isFirst || calls.isRepeatable(call)) {
      // Access to them was lost in a restart.
      if (session && !measured) outcome = await session.run(call, signal);
      else if (session && measured) {
        const noted = beginToolCall(measured, call, clock());
        outcome = await session.run(call, signal, traceparent(measured.trace, noted.span));
        endToolCall(noted, outcome, clock());
      }
    }
    signal.throwIfAborted();
    outcome ??= interrupted();
    const exchange: ToolExchange = {
      name: call.name,
      arguments: call.arguments,
      output: outcome.output,
      step,
      ...(outcome.memory !== undefined && { memory: outcome.memory }),
    };
    const told = engine.answerMessages?.(exchange, messages.of(call.item).at(-1)) ?? [];
    calls.finish(call, outcome, { item: call.item, exchange, messages: told });
    // Nor can its answer be had again: both are kept at once, where they are kept.
    if (sink?.commit) sink.commit();
    else await sink?.flush();
  });
}

/** The answer to a call whose outcome is unknown. */
function interrupted(): ToolOutcome {
  const output = "The server was restarted while this tool was running. Whether it did its work is not known.";
  return { output, failed: true, error: { type: "mcp_protocol_error", code: -32000, message: output } };
}

/**
 * Runs `work` for each item, at most `limit` of them concurrently, begun in order. Rejects as the first failure does,
 * without waiting for the others.
 */
export async function forEachAtOnce<T>(
  items: Iterable<T>,
  limit: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  // All workers take from one iterator.
  const left = items[Symbol.iterator]();
  const worker = async (): Promise<void> => {
    for (let next = left.next(); !next.done; next = left.next()) await work(next.value);
  };
  await Promise.all(Array.from({ length: limit }, worker));
}
