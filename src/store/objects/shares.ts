/**
 * The shares of the workers of one machine: the workerd processes that `serve` starts with WORKERS
 * (docs/self-hosting.md). An object runs only in the worker whose share it is in.
 */

/** Gives the worker, from 0, that has an object. `id`: the object's id (`idFromName`), hex. */
export function workerOf(id: string, workers: number): number {
  return Number.parseInt(id.slice(0, 8), 16) % workers;
}
