import type { TokenCount } from "@responses-edge/engines/passed-usage";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { BYTES_PER_TOKEN, estimateFrame, estimateTokens } from "@responses-edge/responses-api/estimate";
import type { TurnAddress } from "@responses-edge/responses-api/ids";
import type { InputItem, Item } from "@responses-edge/responses-api/items/registry";
import {
  type Amounts,
  costOf,
  limitExceeded,
  NOTHING_STORED,
  type Reservation,
  rateHeaders,
  type Stored,
  TENANT,
  takeTogether,
  type UsageKind,
} from "@responses-edge/usage-limits";
import type { Identity } from "../contract/grants.ts";
import { ROW_BYTES } from "../store/home/home-stored.ts";
import { allowanceOf, type EndUserFields, endUserAllowance, endUserOf } from "../store/limits/allowances.ts";
import { fullShares } from "../store/limits/disk-share.ts";
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

/**
 * Counts a request that was not admitted, as one of `kind`. Undefined where it is counted at once, or where nothing
 * counts requests. Throws, or rejects with, the 429 of a limit and the 503 where limits cannot be checked.
 */
export function countRequest(
  { identity, quotas, waitUntil, counting }: Countable,
  kind: "requests" | "reads",
): Promise<void> | undefined {
  if (counting.isDone || !identity.counted) return undefined;
  counting.isDone = true;
  return allowanceOf(identity, quotas)?.count(kind, identity.counted, waitUntil);
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

type Countable = Pick<Caller, "identity" | "quotas" | "waitUntil" | "counting">;

/**
 * Admits a request whose caller's use is counted. Rejects with the 429 of a limit, and with the 503 where limits cannot
 * be checked: without them no request is admitted.
 */
export function admit(
  caller: Caller,
  counted: Counted,
  request: CreateRequest,
  input: readonly InputItem[],
  address: TurnAddress,
  { kind, makesTurn, prompts }: { kind: AdmissionKind; makesTurn: boolean; prompts: number },
): Promise<Admission> {
  caller.counting.isDone = true;
  const isReserved = kind !== "count" && limitsTokens(counted, caller.identity);
  const need = new Need(caller, request, input, { isReserved, prompts });
  if (kind === "run") return admitRun(caller, counted, request, address, need);
  return admitTurn(caller, counted, request, need, makesTurn ? need.stored : NOTHING_STORED);
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
  if (fullShares.has(identity.tenant)) await checkShare(caller);
  const allowance = allowanceOf(identity, quotas);
  if (!allowance || !identity.counted || identity.storingKey === undefined) return undefined;
  const need = { stored_bytes: bytes + ROW_BYTES, stored_conversations: conversations };
  const reservation = await allowance.take(need, identity.counted, waitUntil);
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

/** The output tokens that are expected of a request without a limit. */
const EXPECTED_TOKENS = 1_024;

/** Millionths of a dollar. A model without a price needs this much, so that a budget that is used up refuses it, too. */
const LEAST_COST = 0.001;

/** An estimate of the tokens that a request takes: its prompt, and its maximum output. */
class Need {
  readonly #caller: Caller;
  readonly #request: CreateRequest;
  readonly isReserved: boolean;
  readonly #prompts: number;
  #items: readonly (InputItem | Item)[];
  #input: number | undefined;

  /**
   * `isReserved`: whether tokens are limited. If they are not, the items are read only where the turn is cut off.
   * `prompts`: how often the model is asked.
   */
  constructor(
    caller: Caller,
    request: CreateRequest,
    items: readonly InputItem[],
    { isReserved, prompts }: { isReserved: boolean; prompts: number },
  ) {
    this.#caller = caller;
    this.#request = request;
    this.#items = items;
    this.isReserved = isReserved;
    this.#prompts = prompts;
  }

  /** The items of the prompt that are known so far. */
  set items(items: readonly Item[]) {
    this.#items = items;
    this.#input = undefined;
  }

  /** Tokens of the prompt. */
  get input(): number {
    this.#input ??= this.#prompts * (estimateFrame(this.#request) + estimateTokens(this.#items));
    return this.#input;
  }

  get amounts(): { tokens: number; cost: number } {
    if (!this.isReserved) return { tokens: 0, cost: 0 };
    const { prices, reservedOutputTokens } = this.#caller.config.keys;
    const { model, max_output_tokens: most } = this.#request;
    const output = most ?? reservedOutputTokens;
    const cost = costOf(model ?? "", { input: this.input, cached: 0, output }, prices);
    return { tokens: this.input + output, cost: Math.max(cost, LEAST_COST) };
  }

  /** The approximate bytes and responses that the turn stores: input and output. */
  get stored(): Stored {
    const { store, conversation, max_output_tokens: most } = this.#request;
    if (store === false && conversation == null) return NOTHING_STORED;
    const bytes = this.#caller.bodyLength + ROW_BYTES + BYTES_PER_TOKEN * (most ?? EXPECTED_TOKENS);
    return { ...NOTHING_STORED, stored_bytes: bytes, stored_responses: store === false ? 0 : 1 };
  }
}

async function admitTurn(
  caller: Caller,
  counted: Counted,
  request: CreateRequest,
  need: Need,
  stored: Stored,
): Promise<Admission> {
  const { config } = caller;
  const amounts = { ...need.amounts, ...stored, requests: 1, slots: 1 };
  const reservation = await taken(caller, counted, amounts, request);
  caller.tell?.(rateHeaders(reservation.status));
  const expect = (items: readonly Item[]) => {
    need.items = items;
    const { tokens, cost } = need.amounts;
    return reservation.raise(tokens, cost);
  };
  return {
    expect: need.isReserved ? expect : undefined,
    end(result) {
      if (!result || !counted.tellsUsage) return reservation.end([]);
      // The request named no model: this one answered.
      const model = request.model ?? (JSON.parse(result.closed.head) as { model?: string }).model ?? "unknown";
      const asked = { model, estimatedInput: () => need.input };
      reservation.end(usageOfTurn(result, asked, config.keys.prices));
    },
  };
}

/**
 * Takes what a request needs from the limits of its key, and from those of its end user where the request names one and
 * end users are limited.
 */
async function taken(
  { identity, quotas, waitUntil }: Caller,
  counted: Counted,
  amounts: Partial<Amounts>,
  fields: EndUserFields,
): Promise<Reservation> {
  const allowance = allowanceOf(identity, quotas);
  if (!allowance) throw new TypeError(`${identity.tenant}:${identity.keyId} is not counted.`);
  const take = () => allowance.take(amounts, counted, waitUntil);
  const endUser = endUserOf(identity, fields);
  const { endUser: limits } = identity;
  if (!endUser || !limits) return take();
  const own = endUserAllowance(identity, endUser, limits, quotas);
  return takeTogether([() => own.take(amounts, limits, waitUntil), take]);
}

/** The home knows what the run continues, so the prompt is not reserved any further here. */
async function admitRun(
  { identity, quotas, waitUntil, tell }: Caller,
  counted: Counted,
  { model, ...fields }: CreateRequest,
  { home, turn }: TurnAddress,
  need: Need,
): Promise<Admission> {
  const { tenant, keyId } = identity;
  const endUser = endUserOf(identity, fields);
  const reservation: RunReservation = {
    holder: `run:${home}${turn}`,
    tenant,
    keyId,
    limits: counted,
    ...need.amounts,
    stored: need.stored,
    estimatedInput: need.input,
    ...(model != null && { model }),
    ...(endUser && identity.endUser && { endUser: { ...endUser, limits: identity.endUser } }),
  };
  const stub = quotas.getByName(tenant);
  tell?.(rateHeaders(await reserveRun(reservation, stub)));
  return {
    reservation,
    end() {
      // If this fails, the reservation ends by itself once the run has not reported for a while.
      waitUntil(endRun(reservation, stub, [], false).catch(() => {}));
    },
  };
}

type Counted = NonNullable<Identity["counted"]>;

/**
 * Admits a request to one of vLLM's own endpoints. `most` is the most that it will take, and `kind` the kind of usage;
 * `fields` name its end user. Undefined where nothing is counted. Throws as `admit` does.
 */
export async function admitPassed(
  caller: Caller,
  { model, kind, most }: { model: string; kind: UsageKind; most: () => TokenCount },
  fields: EndUserFields,
): Promise<Admission<TokenCount> | undefined> {
  const { identity, config, tell, counting } = caller;
  const { counted } = identity;
  if (!counted) return undefined;
  counting.isDone = true;
  const { prices } = config.keys;
  const amountsOf = (count: TokenCount) => ({
    tokens: count.input + count.output,
    cost: Math.max(costOf(model, count, prices), LEAST_COST),
  });
  const usageOf = (used: TokenCount) => ({ kind, model, requests: 1, ...used, cost: costOf(model, used, prices) });
  const isReserved = limitsTokens(counted, identity);
  const amounts = isReserved ? amountsOf(most()) : { tokens: 0, cost: 0 };
  const reservation = await taken(caller, counted, { ...amounts, requests: 1, slots: 1 }, fields);
  tell?.(rateHeaders(reservation.status));
  return {
    end: (used) => reservation.end(used && counted.tellsUsage ? [usageOf(used)] : []),
  };
}

function limitsTokens(counted: Counted, { endUser }: Identity): boolean {
  const all = [counted.tenant, counted.key, endUser?.tenant, endUser?.key];
  return all.some((limits) => limits?.tokens_per_minute != null || limits?.budget != null);
}
