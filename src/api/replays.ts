import { SseStream } from "@responses-edge/bounded-io/event-stream/sse-stream";
import { responseNotFound } from "@responses-edge/responses-api/errors";
import { responseId, type TurnAddress } from "@responses-edge/responses-api/ids";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { impliedEvents } from "@responses-edge/turn/implied-events";
import type { ShownResponse } from "@responses-edge/turn/response";
import { z } from "zod";
import { Permits } from "../store/limits/permits.ts";
import { pacedEvents, timesOf } from "./replay-pace.ts";
import { createdInclude, shownResponse } from "./responses.ts";
import { followIfLogged } from "./run-events.ts";
import type { Caller } from "./transport.ts";

/** Replays: the events of a stored response once more, as a stream. No model and no tool is asked. */

/** The body of a replay. */
export const replayBody = z.object({
  speed: z
    .number()
    .min(0.01)
    .max(1000)
    .nullish()
    .describe("1 for the pace of the original, 2 for twice as fast; null or absent for no pauses."),
  starting_after: z.int().min(0).nullish().describe("Only the events after this sequence number."),
  include_obfuscation: z.boolean().nullish().describe("False leaves out the padding of deltas."),
});

/** A replay: its events, and whether they are those that were sent (`exact`) or made again from the stored items (`rebuilt`). */
export interface Replay {
  events: ReadableStream<Uint8Array>;
  kind: "exact" | "rebuilt";
}

/**
 * The events of a response as an SSE stream. A run has its event log: its bytes are those of its first stream. The events of any other response are
 * rebuilt from its items. Throws the 404 of an unknown response, the 400 of an invalid body, the 429 of a run with too many
 * readers, and the 429 and 503 of memory permits.
 */
export async function replayResponse(caller: Caller, address: TurnAddress, body: unknown): Promise<Replay> {
  const { speed, starting_after: startingAfter, include_obfuscation: obfuscation } = parse(replayBody, body);
  const stored = await caller.homes.ask(address.home, null, (home) => home.retrieve(address.turn));
  if (!stored) throw responseNotFound(responseId(address));
  const after = startingAfter ?? -1;
  const { heartbeatMs } = caller.config;
  const times = speed == null ? undefined : timesOf(stored);
  const paced = (events: ReadableStream<Uint8Array>) =>
    speed == null || !times ? events : pacedEvents(events, { times, speed, heartbeatMs, signal: caller.signal });
  const logged = await followIfLogged(caller, address, { after, obfuscation: obfuscation ?? true });
  if (logged) return { events: paced(logged), kind: "exact" };
  const permits = new Permits("text", caller, stored.head.length + stored.output.length);
  try {
    const shown = await shownResponse(caller, stored, createdInclude({}));
    return { events: paced(rebuiltEvents(caller, shown, after, permits)), kind: "rebuilt" };
  } catch (error) {
    permits[Symbol.dispose]();
    throw error;
  }
}

/** The events that a response implies, after the sequence number `after`. Holds the permits until its end. */
function rebuiltEvents(caller: Caller, response: ShownResponse, after: number, permits: Permits) {
  let hasLeft = false;
  const stream = new SseStream(caller.config.heartbeatMs, () => {
    hasLeft = true;
  });
  const write = async () => {
    using _held = permits;
    let number = 0;
    for (const { type, json } of impliedEvents(response)) {
      if (number > after) stream.event(type, json);
      number += 1;
      const full = stream.flush();
      if (full) await full;
      if (hasLeft || caller.signal.aborted) return stream.abandon();
    }
    await stream.end();
  };
  caller.waitUntil(write().catch(() => stream.abandon()));
  return stream.readable;
}
