import { env } from "cloudflare:workers";
import { isAlone, keyOf, ownerOf } from "./ownership.ts";
import { type ObjectName, textOf, workerOf } from "./registry.ts";
import { OWN_WORKER, WORKERS } from "./workers.ts";

/**
 * Says where an object runs: in this process, in another worker's (`workers.ts`), or in the process before or after this
 * one (`ownership.ts`).
 */

/** `here`, `other` (the process before or after this one), or the number of another worker. */
export type Place = "here" | "other" | number;

/** The place of an object. A promise while a hand-over decides it; rejects with the 503 of an unreachable object if that takes too long. */
export function placeOf(object: ObjectName): Place | Promise<Place> {
  const worker = otherWorkerOf(object);
  if (worker !== undefined) return worker;
  if (isAlone()) return "here";
  return ownerOf(keyOf(object.binding, textOf(object))).then((owner) => (owner === "here" ? "here" : "other"));
}

/** The worker whose share has an object; undefined for this one. */
export function otherWorkerOf(object: ObjectName): number | undefined {
  if (WORKERS === 1) return undefined;
  const namespaces = env as unknown as Record<string, DurableObjectNamespace>;
  const id = namespaces[object.binding]?.idFromName(textOf(object));
  const worker = workerOf(String(id), WORKERS);
  return worker === OWN_WORKER ? undefined : worker;
}
