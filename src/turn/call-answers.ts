import type { Engine, ToolExchange } from "../contract/engine.ts";
import { beginToolCall, endToolCall, type Measurements, traceparent } from "../contract/measurements.ts";
import type { PendingCall, ToolOutcome } from "../contract/server-tool.ts";
import type { TurnTools } from "../contract/turn-tools.ts";
import { forEachAtOnce } from "./for-each-at-once.ts";
import type { BatchSink } from "./output-events.ts";
import type { ResponseBuilder } from "./response-builder.ts";

/** Runs the calls of a round that this server answers. */

/** Calls of one round, and servers asked for their tools, side by side. */
export const MAX_CONCURRENT_CALLS = 8;

export interface CallAnswerOptions {
  builder: ResponseBuilder;
  engine: Engine;
  /** Absent where a restart has lost the access to them. */
  tools: TurnTools | undefined;
  sink: BatchSink | undefined;
  signal: AbortSignal;
  /** Names the round: its calls were made side by side. */
  step: string;
  /** What the request measures of itself, where anybody wants to know; and now, in Unix milliseconds. */
  measured?: Measurements | undefined;
  clock: () => number;
}

/**
 * Runs the calls that wait for an answer. One that was dispatched before a crash is not run again, because nobody knows
 * how far it came. Rejects with the signal's reason when it is aborted; a tool's own failure is an answer.
 */
export async function answerCalls(options: CallAnswerOptions): Promise<void> {
  const { builder, engine, tools, sink, signal, step, measured, clock } = options;
  const dispatchedBefore = new Set(builder.state.answering?.dispatched);

  const run = async (call: PendingCall): Promise<ToolOutcome> => {
    if (dispatchedBefore.has(call.item)) return interrupted();
    builder.startCall(call);
    commit(sink);
    if (!tools) return interrupted();
    if (!measured) return tools.run(call, signal);
    const noted = beginToolCall(measured, call, clock());
    const outcome = await tools.run(call, signal, traceparent(measured.trace, noted.span));
    endToolCall(noted, outcome, clock());
    return outcome;
  };

  await forEachAtOnce([...builder.pendingCalls], MAX_CONCURRENT_CALLS, async (call) => {
    const outcome = await run(call);
    signal.throwIfAborted();
    const exchange: ToolExchange = {
      name: call.name,
      arguments: call.arguments,
      output: outcome.output,
      step,
      ...(outcome.memory !== undefined && { memory: outcome.memory }),
    };
    const messages = engine.answerMessages(exchange, builder.messagesOf(call).at(-1));
    builder.finishCall(call, outcome, { item: call.item, exchange, messages });
    await commit(sink);
  });
}

/** What a tool does cannot be undone, nor its answer be had again: both are kept at once, where they are kept. */
function commit(sink: BatchSink | undefined): Promise<void> | undefined {
  if (!sink?.commit) return sink?.flush();
  sink.commit();
  return undefined;
}

/** The answer to a call of whose running nothing more is known. */
function interrupted(): ToolOutcome {
  const output = "The server was restarted while this tool was running. Whether it did its work is not known.";
  return { output, failed: true, error: { type: "mcp_protocol_error", code: -32000, message: output } };
}
