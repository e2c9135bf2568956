import { type LimitState, TENANT } from "./ledger.ts";

/** A limit of which nearly all is used, as its operator is told of it. */
export type NearlyUsed = Pick<LimitState, "of" | "obstacle" | "limit" | "used" | "resetsAt">;

/** The share of a limit that is nearly all of it. */
const NEARLY = 0.8;

/** Limits that are remembered as told of; beyond it some are told again. */
const MAX_TOLD = 10_000;

/** Budgets and stored amounts that are nearly used up: each is told of once. A new period, and a higher limit, begin anew. */
export class NearlyUsedLimits {
  readonly #told = new Set<string>();

  /** Those limits of a key and its tenant that are nearly used, and were not when they were last looked at. */
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
