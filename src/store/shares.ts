/**
 * The shares of the workers of one machine: the processes of workerd that `serve` starts with WORKERS (docs/self-hosting.md). An object runs in the
 * worker whose share it is in, and nowhere else.
 */

/** Gives the worker, from 0, whose share an object is in. `id`: the object's own (`idFromName`), hex. */
export function workerOf(id: string, workers: number): number {
  return Number.parseInt(id.slice(0, 8), 16) % workers;
}
