import type { TokenCount } from "@responses-edge/engines/passed-usage";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { BYTES_PER_TOKEN, estimateFrame, estimateTokens } from "@responses-edge/responses-api/estimate";
import type { TurnAddress } from "@responses-edge/responses-api/ids";
import type { InputItem, Item } from "@responses-edge/responses-api/items/registry";
import {
  type Amounts,
  costOf,
  NOTHING_STORED,
  type Reservation,
  type Stored,
  TENANT,
  takeTogether,
  type UsageKind,
} from "@responses-edge/usage-limits";
import type { Identity } from "../contract/grants.ts";
import { ROW_BYTES } from "../store/home/home-stored.ts";
import { allowanceOf, countUsage, type EndUserFields, endUserOf } from "../store/limits/allowances.ts";
import { fullShares } from "../store/limits/disk-share.ts";
import { limitExceeded, rateHeaders } from "../store/limits/refusal.ts";
import { endRun, type RunReservation, reserveRun } from "../store/limits/run-quota.ts";
import { type UsedTurn, usageOfTurn } from "../store/limits/usage.ts";
import type { Caller } from "./transport.ts";

/** A request that its caller's limits admit, with what it has reserved of them. Its `RequestScope` ends it. */
export interface Admission<Used = UsedTurn> {
  /**
   * Reserves the tokens by which the prompt is longer than was known at admission. Rejects with the 429 of a limit that
   * has fewer left. Undefined where prompts are not reserved.
   */
  expect?: ((items: readonly Item[]) => Promise<void> | undefined) | undefined;
  /** A run's reservation, which its home ends once the run has begun there. */
  reservation?: RunReservation;
  /** Ends the reservation: counts `used`, and gives the rest back. Undefined counts nothing. */
  end(used?: Used): void;
}

/** A foreground turn, a run in its home, or a request that asks no model to generate. */
export type AdmissionKind = "turn" | "run" | "count";

type Countable = Pick<Caller, "identity" | "quotas" | "waitUntil" | "counting">;

/**
 * Counts a request that was not admitted, as one of `kind`. Undefined where it is counted at once, or where nothing
 * counts requests. Throws, or rejects with, the 429 of a limit and the 503 where limits cannot be checked.
 */
export function countRequest(
  { identity, quotas, waitUntil, counting }: Countable,
  kind: "requests" | "reads",
): Promise<void> | undefined {
  const { counted } = identity;
  if (counting.isDone || !counted) return undefined;
  counting.isDone = true;
  const taken = allowanceOf(identity, counted, quotas).take({ [kind]: 1 }, counted, waitUntil);
  if (taken instanceof Promise) return taken.then((reservation) => reservation.end([]));
  taken.end([]);
  return undefined;
}

/**
 * Does the work of a request that counts as one of `kind`. A request that fails before it is counted, such as one whose
 * body is invalid, is counted then.
 */
export async function countedWork<T>(
  request: Countable,
  kind: "requests" | "reads",
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } finally {
    await countRequest(request, kind);
  }
}

/** The output tokens that are expected of a request without a limit. */
const EXPECTED_TOKENS = 1_024;

/** Millionths of a dollar. A model without a price needs this much, so that a budget that is used up refuses it, too. */
const LEAST_COST = 0.001;

/**
 * Admits a request for its prompt and its maximum output, which are estimated. `prompts`: how often the model is asked. A caller
 * without limits is always admitted; only its use is counted. Rejects with the 429 of a limit, and with the 503 where limits cannot be checked: without
 * them no request is admitted.
 */
export async function admit(
  caller: Caller,
  request: CreateRequest,
  input: readonly InputItem[],
  address: TurnAddress,
  { kind, makesTurn, prompts }: { kind: AdmissionKind; makesTurn: boolean; prompts: number },
): Promise<Admission> {
  const { identity, config, tell } = caller;
  const { prices, reservedOutputTokens } = config.keys;
  const { model, max_output_tokens: most } = request;
  const lengthOf = (items: readonly (InputItem | Item)[]) => prompts * (estimateFrame(request) + estimateTokens(items));
  const usageOf = (result: UsedTurn, items: readonly (InputItem | Item)[]) => {
    // If the request named no model, this one answered.
    const answered = model ?? (JSON.parse(result.closed.head) as { model?: string }).model ?? "unknown";
    return usageOfTurn(result, { model: answered, estimatedInput: () => lengthOf(items) }, prices);
  };
  if (!identity.counted) {
    // The home of a run counts it.
    return { end: (result) => kind !== "run" && result && countUsage(caller, usageOf(result, input)) };
  }
  // If tokens are not limited, the items are read only where the turn is cut off.
  const isReserved = kind !== "count" && limitsTokens(identity);
  const tokensOf = (items: readonly (InputItem | Item)[]) => {
    if (!isReserved) return { tokens: 0, cost: 0 };
    const used = { input: lengthOf(items), cached: 0, output: most ?? reservedOutputTokens };
    return { tokens: used.input + used.output, cost: Math.max(costOf(model ?? "", used, prices), LEAST_COST) };
  };
  if (kind === "run") {
    const need = { ...tokensOf(input), stored: storedBy(caller, request), estimatedInput: lengthOf(input) };
    return admitRun(caller, request, address, need);
  }
  const stored = makesTurn ? storedBy(caller, request) : NOTHING_STORED;
  const reservation = await taken(caller, { ...tokensOf(input), ...stored, requests: 1, slots: 1 }, request);
  tell?.(rateHeaders(reservation.status));
  let known: readonly (InputItem | Item)[] = input;
  const expect = (items: readonly Item[]) => {
    known = items;
    const { tokens, cost } = tokensOf(items);
    return reservation.raise(tokens, cost);
  };
  return {
    expect: isReserved ? expect : undefined,
    end(result) {
      reservation.end(result ? usageOf(result, known) : []);
    },
  };
}

/** The approximate bytes and responses that a turn stores: input and output. */
function storedBy({ bodyLength }: Caller, { store, conversation, max_output_tokens: most }: CreateRequest): Stored {
  if (store === false && conversation == null) return NOTHING_STORED;
  const bytes = bodyLength + ROW_BYTES + BYTES_PER_TOKEN * (most ?? EXPECTED_TOKENS);
  return { ...NOTHING_STORED, stored_bytes: bytes, stored_responses: store === false ? 0 : 1 };
}

/**
 * Takes what a request needs from the limits of its key, and from those of its end user where the request names one and
 * end users are limited.
 */
async function taken(
  { identity, quotas, waitUntil, counting }: Caller,
  amounts: Partial<Amounts>,
  fields: EndUserFields,
): Promise<Reservation> {
  const { counted, endUser: limits } = identity;
  if (!counted) throw new TypeError(`${identity.tenant}:${identity.keyId} is not counted.`);
  counting.isDone = true;
  const take = () => allowanceOf(identity, counted, quotas).take(amounts, counted, waitUntil);
  const endUser = endUserOf(identity, fields);
  if (!endUser || !limits) return take();
  const own = allowanceOf(identity, limits, quotas, endUser);
  return takeTogether([() => own.take(amounts, limits, waitUntil), take]);
}

/** The home knows what the run continues, so the prompt is not reserved any further here. */
async function admitRun(
  { identity, quotas, waitUntil, tell, counting }: Caller,
  { model, ...fields }: CreateRequest,
  { home, turn }: TurnAddress,
  need: Pick<RunReservation, "tokens" | "cost" | "stored" | "estimatedInput">,
): Promise<Admission> {
  const { tenant, keyId, counted } = identity;
  if (!counted) throw new TypeError(`${tenant}:${keyId} is not counted.`);
  counting.isDone = true;
  const endUser = endUserOf(identity, fields);
  const reservation: RunReservation = {
    ...{ holder: `run:${home}${turn}`, tenant, keyId, limits: counted, ...need },
    ...(model != null && { model }),
    ...(endUser && identity.endUser && { endUser: { ...endUser, limits: identity.endUser } }),
  };
  const stub = quotas.getByName(tenant);
  tell?.(rateHeaders(await reserveRun(reservation, stub)));
  return {
    reservation,
    end() {
      // If this fails, the reservation ends by itself once the run has not reported for a while.
      waitUntil(endRun({ reservation, usage: [], hasRenewed: false }, stub).catch(() => {}));
    },
  };
}

/**
 * Admits a request to one of vLLM's own endpoints. `most` is the most that it will take, and `kind` the kind of usage;
 * `fields` name its end user. Throws as `admit` does.
 */
export async function admitPassed(
  caller: Caller,
  { model, kind, most }: { model: string; kind: UsageKind; most: () => TokenCount },
  fields: EndUserFields,
): Promise<Admission<TokenCount>> {
  const { identity, config, tell } = caller;
  const costIn = (count: TokenCount) => costOf(model, count, config.keys.prices);
  const usageOf = (used: TokenCount) => [{ kind, model, requests: 1, ...used, cost: costIn(used) }];
  if (!identity.counted) return { end: (used) => used && countUsage(caller, usageOf(used)) };
  const amounts: Partial<Amounts> = { requests: 1, slots: 1 };
  if (limitsTokens(identity)) {
    const count = most();
    amounts.tokens = count.input + count.output;
    amounts.cost = Math.max(costIn(count), LEAST_COST);
  }
  const reservation = await taken(caller, amounts, fields);
  tell?.(rateHeaders(reservation.status));
  return { end: (used) => reservation.end(used ? usageOf(used) : []) };
}

function limitsTokens({ counted, endUser }: Identity): boolean {
  const all = [counted?.tenant, counted?.key, endUser?.tenant, endUser?.key];
  return all.some((limits) => limits?.tokens_per_minute != null || limits?.budget != null);
}

/**
 * Reserves the bytes and conversations that a request without a turn stores, until the request ends. Undefined where
 * stored bytes are not counted. Throws as `admit` does, and the 413 of a request longer than the whole storage limit.
 */
export async function admitStored(
  caller: Caller,
  bytes: number,
  conversations: number,
): Promise<Disposable | undefined> {
  const { identity, quotas, waitUntil } = caller;
  const { counted, storingKey, tenant } = identity;
  if (fullShares.has(tenant)) await checkShare(caller);
  if (!counted || storingKey === undefined) return undefined;
  const need = { stored_bytes: bytes + ROW_BYTES, stored_conversations: conversations };
  const reservation = await allowanceOf(identity, counted, quotas).take(need, counted, waitUntil);
  return { [Symbol.dispose]: () => reservation.end([]) };
}

/** Throws the 429 of a tenant, one of `fullShares`, that really stores as much as its share of the disk, or more. */
export async function checkShare({ identity, quotas, bodyLength }: Caller): Promise<void> {
  const { tenant, diskShare: limit = 0 } = identity;
  if (limit === 0) return;
  const stored = await quotas.getByName(tenant).stored();
  const used = Object.values(stored).reduce((sum, { stored_bytes: bytes }) => sum + bytes, 0);
  if (used < limit) {
    fullShares.delete(tenant);
    return;
  }
  const obstacle = { kind: "stored_bytes", of: "tenant", limit, used, wanted: bodyLength + ROW_BYTES } as const;
  throw limitExceeded({ ...obstacle, retryMs: undefined }, {}, { tenant, keyId: TENANT });
}
