import type { Identity } from "../../contract/identity.ts";
import { Lease } from "./lease.ts";
import type { Quota } from "./quota.ts";

/** Leases of one isolate. Those that are idle are forgotten first; one that is in use is never. */
const MAX_LEASES = 10_000;

const leases = new Map<string, Lease>();

/** The lease of a caller whose use is counted; undefined of one whose is not. */
export function leaseOf(identity: Identity, quotas: DurableObjectNamespace<Quota>): Lease | undefined {
  const { tenant, keyId, counted } = identity;
  if (!counted) return undefined;
  // A tenant's name has no colon.
  const name = `${tenant}:${keyId}`;
  let lease = leases.get(name);
  if (lease) return lease;
  if (leases.size >= MAX_LEASES) {
    for (const [other, { isIdle }] of leases) if (isIdle) leases.delete(other);
  }
  lease = new Lease({ tenant, keyId }, counted, () => quotas.getByName(tenant));
  leases.set(name, lease);
  return lease;
}
