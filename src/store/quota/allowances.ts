import type { Identity } from "../../contract/identity.ts";
import { Allowance } from "./allowance.ts";
import type { Quota } from "./quota.ts";

/** Allowances of one isolate. Those that are idle are forgotten first; one that is in use is never. */
const MAX_ALLOWANCES = 10_000;

const allowances = new Map<string, Allowance>();

/** The allowance of a caller whose use is counted; undefined of one whose is not. */
export function allowanceOf(identity: Identity, quotas: DurableObjectNamespace<Quota>): Allowance | undefined {
  const { tenant, keyId, counted } = identity;
  if (!counted) return undefined;
  // A tenant's name has no colon.
  const name = `${tenant}:${keyId}`;
  let allowance = allowances.get(name);
  if (allowance) return allowance;
  if (allowances.size >= MAX_ALLOWANCES) {
    for (const [other, { isIdle }] of allowances) if (isIdle) allowances.delete(other);
  }
  allowance = new Allowance({ tenant, keyId }, counted, () => quotas.getByName(tenant));
  allowances.set(name, allowance);
  return allowance;
}
