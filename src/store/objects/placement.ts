import { env } from "cloudflare:workers";
import { ownPlace } from "./ownership.ts";
import { type ObjectName, textOf, workerOf } from "./registry.ts";
import { OWN_WORKER, WORKERS } from "./workers.ts";

/** Says where an object runs: in this process, or in that of a worker (`workers.ts`). */

/** `here`, or the number of a worker: after a hand-over (`ownership.ts`) the own one's is that of the next process. */
export type Place = "here" | number;

/**
 * The place of an object, for a call of another object (`isInner`) or of the Worker. A promise during a hand-over; rejects
 * with the 503 of an unreachable object if that takes too long.
 */
export function placeOf(object: ObjectName, isInner: boolean): Place | Promise<Place> {
  const worker = otherWorkerOf(object);
  if (worker !== undefined) return worker;
  const own = ownPlace(isInner);
  if (own === "here") return own;
  return own instanceof Promise ? own.then((place) => (place === "here" ? place : OWN_WORKER)) : OWN_WORKER;
}

/** The worker whose share has an object; undefined for this one. */
export function otherWorkerOf(object: ObjectName): number | undefined {
  if (WORKERS === 1) return undefined;
  const namespaces = env as unknown as Record<string, DurableObjectNamespace>;
  const id = namespaces[object.binding]?.idFromName(textOf(object));
  const worker = workerOf(String(id), WORKERS);
  return worker === OWN_WORKER ? undefined : worker;
}
