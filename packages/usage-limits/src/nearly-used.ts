import { type LimitState, TENANT } from "./ledger.ts";

/** A limit that is nearly used, in the report to its operator. */
export type NearlyUsed = Pick<LimitState, "of" | "obstacle" | "limit" | "used" | "resetsAt">;

/** The share of a limit from which it is nearly used. */
const NEARLY = 0.8;

/** The maximum of remembered limits; beyond it some are reported again. */
const MAX_TOLD = 10_000;

/**
 * Budgets and storage limits that are nearly used: each is reported once. A new period, and a higher limit, start
 * again.
 */
export class NearlyUsedLimits {
  readonly #told = new Set<string>();

  /** The limits of a key and its tenant that are nearly used, and were not at the last call. */
  take(key: string, limits: readonly LimitState[]): NearlyUsed[] {
    const crossed = limits.filter((state) => {
      const { of, obstacle, limit, used, resetsAt } = state;
      if (limit === 0 || !/^(?:budget|stored)_/.test(obstacle)) return false;
      const name = `${of === "key" ? key : TENANT} ${obstacle} ${limit} ${resetsAt ?? 0}`;
      const isNear = used >= limit * NEARLY;
      const isNew = isNear && !this.#told.has(name);
      if (isNear) this.#told.add(name);
      else this.#told.delete(name);
      return isNew;
    });
    if (this.#told.size > MAX_TOLD) this.#told.clear();
    return crossed;
  }
}
