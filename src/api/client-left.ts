import { clientLeft } from "../protocol/errors.ts";
import type { TurnAddress } from "../protocol/ids.ts";
import type { Caller } from "./transport.ts";

/**
 * A client that hangs up before its response has ended. Its transport tells of it by the caller's signal, or by the
 * sink's `onLeft` when a write finds nobody. Both abort the creation. The turn closes its request to vLLM at once and
 * ends as cancelled; one that still waits for its conversation leaves the queue. A run in its home goes on.
 */

/** A controller that aborts when the client leaves. */
export function abortedByClient(signal: AbortSignal): AbortController {
  const controller = new AbortController();
  signal.addEventListener("abort", () => controller.abort(clientLeft()), { once: true });
  return controller;
}

/** Does what may have to wait for the new turn's conversation, under `ticket`. */
export async function inQueue<T>(
  { caller, address, abort }: { caller: Caller; address: TurnAddress; abort: AbortController },
  ticket: string,
  work: () => Promise<T>,
): Promise<T> {
  const leave = () =>
    caller.waitUntil(caller.homes.ask(address.home, undefined, (home) => home.leaveConversation(ticket)));
  abort.signal.addEventListener("abort", leave, { once: true });
  try {
    return await work();
  } finally {
    abort.signal.removeEventListener("abort", leave);
  }
}
