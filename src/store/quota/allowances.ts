import { Allowance, type QuotaStub } from "@responses-edge/usage-limits";
import type { Identity } from "../../contract/grants.ts";
import { isRetryable } from "../rpc.ts";
import { isTold, latestReport } from "../stored-reports.ts";
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
  const stored = { latest: latestReport, isTold: (latest: number) => isTold(tenant, latest) };
  allowance = new Allowance({ tenant, keyId }, counted, { quota: quotaOf(tenant, quotas), stored });
  allowances.set(name, allowance);
  return allowance;
}

/** The quota of a tenant. A call that the platform lost is made again. */
function quotaOf(tenant: string, quotas: DurableObjectNamespace<Quota>): QuotaStub {
  return {
    async exchange(report, usage) {
      try {
        return await quotas.getByName(tenant).exchange(report, usage);
      } catch (error) {
        if (!isRetryable(error)) throw error;
        return quotas.getByName(tenant).exchange(report, usage);
      }
    },
  };
}
