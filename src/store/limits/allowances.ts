import { createHash } from "node:crypto";
import { shortened } from "@responses-edge/responses-api/validation-errors";
import { Allowance, type CountedLimits, type Who } from "@responses-edge/usage-limits";
import type { Identity } from "../../contract/grants.ts";
import type { Env } from "../../env.ts";
import { isTold, latestReport } from "../objects/stored-reports.ts";

/** Most allowances of one isolate. Idle ones are forgotten first; one in use never is. */
const MAX_ALLOWANCES = 10_000;

const allowances = new Map<string, Allowance>();

/** The allowance of a caller whose use is counted; undefined for others. */
export function allowanceOf(identity: Identity, quotas: Env["QUOTAS"]): Allowance | undefined {
  const { tenant, keyId, counted } = identity;
  return counted && known({ tenant, keyId }, counted, quotas);
}

/** An end user of a caller: an id for counting, and the name from its requests. */
export type EndUser = NonNullable<Who["endUser"]>;

/** The allowance of an end user, under the limits that its caller has for each of them. */
export function endUserAllowance(
  { tenant, keyId }: Identity,
  endUser: EndUser,
  limits: CountedLimits,
  quotas: Env["QUOTAS"],
): Allowance {
  return known({ tenant, keyId, endUser }, limits, quotas);
}

/** The fields in which a request names its end user. */
export interface EndUserFields {
  safety_identifier?: string | null | undefined;
  user?: string | null | undefined;
}

/**
 * The end user that a request names; undefined if its caller has no limits for end users. Names may be long, so their
 * hashes are counted.
 */
export function endUserOf({ endUser: limits }: Identity, fields: EndUserFields): EndUser | undefined {
  const name = limits && (fields.safety_identifier || fields.user);
  if (!name) return undefined;
  return { id: createHash("sha256").update(name).digest("hex").slice(0, 32), name: shortened(name) };
}

function known(who: Who, limits: CountedLimits, quotas: Env["QUOTAS"]): Allowance {
  const { tenant, keyId, endUser } = who;
  // No part has a colon.
  const name = `${tenant}:${keyId}:${endUser?.id ?? ""}`;
  let allowance = allowances.get(name);
  if (allowance) return allowance;
  if (allowances.size >= MAX_ALLOWANCES) {
    for (const [other, { isIdle }] of allowances) if (isIdle) allowances.delete(other);
  }
  const stored = { latest: latestReport, isTold: (latest: number) => isTold(tenant, latest) };
  allowance = new Allowance(who, limits, { quota: quotas.getByName(tenant), stored });
  allowances.set(name, allowance);
  return allowance;
}
