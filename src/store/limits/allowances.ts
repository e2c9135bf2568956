import { createHash } from "node:crypto";
import { shortened } from "@responses-edge/responses-api/validation-errors";
import {
  Allowance,
  type CountedLimits,
  costOf,
  NO_LIMITS,
  type Prices,
  type RequestOutcome,
  type UsageEntry,
  type UsageKind,
} from "@responses-edge/usage-limits";
import type { Identity } from "../../contract/grants.ts";
import type { Env } from "../../env.ts";
import { clientsAreToLeave } from "../objects/process-state.ts";
import { limitExceeded, limitsUnavailable, type Who } from "./refusal.ts";
import { areReported, latestChange } from "./unreported-homes.ts";

/** Most allowances of one isolate. Idle ones are forgotten first; one in use never is. */
const MAX_ALLOWANCES = 10_000;

const allowances = new Map<string, Allowance>();

/** An end user of a caller: an id for counting, and the name from its requests. */
export type EndUser = NonNullable<Who["endUser"]>;

/** The allowance of a caller, or of one of its end users, under these limits. */
export function allowanceOf(
  { tenant, keyId }: Pick<Identity, "tenant" | "keyId">,
  limits: CountedLimits,
  quotas: Env["QUOTAS"],
  endUser?: EndUser,
): Allowance {
  // No part has a colon.
  const name = `${tenant}:${keyId}:${endUser?.id ?? ""}`;
  const known = allowances.get(name);
  if (known) return known;
  if (allowances.size >= MAX_ALLOWANCES) {
    for (const [other, { isIdle }] of allowances) if (isIdle) allowances.delete(other);
  }
  const who = { tenant, keyId, endUser };
  const made = new Allowance({ key: keyId, endUser: endUser?.id }, limits, {
    quota: quotas.getByName(tenant),
    stored: { latest: latestChange, isTold: (latest) => areReported(tenant, latest) },
    refused: (obstacle, status) => limitExceeded(obstacle, status, who),
    unavailable: limitsUnavailable,
    isEnding: clientsAreToLeave,
  });
  allowances.set(name, made);
  return made;
}

/** The caller whose use is counted, and what the count needs. */
export interface UseOwner {
  identity: Pick<Identity, "tenant" | "keyId" | "counted">;
  quotas: Env["QUOTAS"] | undefined;
  waitUntil: (promise: Promise<unknown>) => void;
}

/**
 * Counts usage that no reservation has: of a caller without limits, or of requests that have ended. It adds up in memory, and the
 * caller's allowance reports it beside requests. `isBrief`: at once, because waiting costs.
 */
export function countUsage(
  { identity, quotas, waitUntil }: UseOwner,
  usage: readonly UsageEntry[],
  isBrief = false,
): void {
  if (!quotas || usage.length === 0) return;
  allowanceOf(identity, identity.counted ?? NO_LIMITS, quotas).count(usage, waitUntil, isBrief);
}

/** Counts the end of a request beside what it has used. `isBrief`: as `countUsage` has it. */
export function countOutcome(
  { identity, quotas, waitUntil }: UseOwner,
  kind: UsageKind,
  model: string,
  outcome: RequestOutcome,
  isBrief: boolean,
): void {
  if (!quotas) return;
  const allowance = allowanceOf(identity, identity.counted ?? NO_LIMITS, quotas);
  allowance.countOutcome(kind, model, outcome, waitUntil, isBrief);
}

/** Reports what this isolate has not reported. Resolves when that was tried; never rejects. */
export async function reportUsage(): Promise<void> {
  await Promise.all([...allowances.values()].map((allowance) => allowance.report()));
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

/** The use of a model within a request (embeddings for a search, an image, a moderation). It does not count as a request of the key. */
export interface CountedUse {
  kind: UsageKind;
  model: string;
  /** Tokens that the model reads, as estimated. */
  tokens: number;
  prices: Prices;
}

/**
 * Does work that uses a model, within the limits of a key. `work` gives its result, and the tokens that the model has
 * really read; undefined: as estimated. Rejects with the 429 of a limit, and as `work` does, whose use then does not count.
 */
export async function countedUse<T>(
  owner: UseOwner,
  { kind, model, prices, tokens: expected }: CountedUse,
  work: () => Promise<{ value: T; tokens: number | undefined }>,
): Promise<T> {
  const { identity, quotas, waitUntil } = owner;
  const { counted } = identity;
  const usageOf = (tokens: number): UsageEntry => {
    const read = { input: tokens, cached: 0, output: 0 };
    return { kind, model, requests: 1, ...read, cost: costOf(model, read, prices) };
  };
  const need = { tokens: expected, cost: usageOf(expected).cost };
  const reservation =
    counted && quotas && (await allowanceOf(identity, counted, quotas).take(need, counted, waitUntil));
  let usage: UsageEntry[] = [];
  try {
    const { value, tokens = expected } = await work();
    usage = [usageOf(tokens)];
    return value;
  } finally {
    if (reservation) reservation.end(usage);
    else countUsage(owner, usage);
  }
}
