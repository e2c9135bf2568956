import { ApiError } from "../protocol/errors.ts";
import { tenantRuns } from "./tenant-load.ts";

/**
 * The turns that run in this isolate, whoever asked for them. An isolate that runs out of memory loses all of its turns
 * (Cloudflare gives it 128 MB), so that new ones are refused before.
 */

/** Seconds. By then other turns have ended, or another isolate takes the request. */
const RETRY_AFTER = "2";

/**
 * Turns beside their clients. A request that the platform gives up runs none of its last words, so that nothing would
 * give its place back: what nobody holds any more is none.
 */
const places = new Set<WeakRef<Disposable>>();

/**
 * Lets a turn in beside its client, until what it gives is disposed of, which may happen more than once, or is no longer
 * held. Throws the 503 of an isolate that has `limit` turns already.
 */
export function enterTurn(limit: number): Disposable {
  expectRoom(limit);
  const place = {
    [Symbol.dispose]: () => {
      places.delete(held);
    },
  };
  const held = new WeakRef<Disposable>(place);
  places.add(held);
  return place;
}

/** How many turns run beside their clients. */
export function turnsBesideClients(): number {
  for (const held of places) if (held.deref() === undefined) places.delete(held);
  return places.size;
}

/** Throws the 503 of an isolate that has `limit` turns already; runs in homes are among them. */
export function expectRoom(limit: number): void {
  if (places.size + tenantRuns.most < limit) return;
  turnsBesideClients();
  if (places.size + tenantRuns.total() >= limit) throw overloaded();
}

/** OpenAI's code and status of a server that has too much to do; its clients try again after `retry-after`. */
function overloaded(): ApiError {
  return new ApiError({
    status: 503,
    message: "The server is overloaded: it has as many responses in progress as it may. Please retry in a few seconds.",
    code: "server_is_overloaded",
    headers: { "retry-after": RETRY_AFTER },
  });
}
