import type { Grants } from "../contract/grants.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { estimateFrame, estimateTokens } from "../protocol/estimate.ts";
import type { TurnAddress } from "../protocol/ids.ts";
import type { InputItem, Item } from "../protocol/items.ts";
import type { Reservation } from "../store/quota/lease.ts";
import { leaseOf } from "../store/quota/leases.ts";
import { rateHeaders } from "../store/quota/refusal.ts";
import { endRun, type RunReservation, reserveRun } from "../store/quota/run-quota.ts";
import { costOf, usageOfTurn } from "../store/quota/turn-usage.ts";
import type { TurnResult } from "../turn/turn.ts";
import type { Caller } from "./transport.ts";

/**
 * Whether a request's limits let it in, and what it has reserved of them. A caller whose use is not counted is let in
 * without a word to anybody.
 */
export interface Admission {
  /**
   * Reserves what the prompt has more than was known. Rejects with the 429 where that is not there. Undefined where
   * nothing is reserved by the prompt.
   */
  expect: ((items: readonly Item[]) => Promise<void> | undefined) | undefined;
  /** The reservation is the run's from now on: its home ends it. Undefined where there is none. */
  handOver(): RunReservation | undefined;
  /** It is not, after all: the run was refused. */
  takeBack(): void;
  /** Ends the reservation: what the turn has used counts, the rest is given back. Only the first word counts. */
  end(result?: TurnResult): void;
}

/** A turn beside its client, a run in its home, or a question that makes no model speak. */
export type AdmissionKind = "turn" | "run" | "count";

const UNCOUNTED: Admission = { expect: undefined, handOver: () => undefined, takeBack: () => {}, end: () => {} };

/** Lets a request in. Throws the 429 of a limit, and the 503 where limits cannot be checked: then nobody is let in. */
export function admit(
  caller: Caller,
  request: CreateRequest,
  input: readonly InputItem[],
  address: TurnAddress,
  kind: AdmissionKind,
): Admission | Promise<Admission> {
  const { identity } = caller;
  if (!identity.counted) return UNCOUNTED;
  const { tenant, key } = identity.counted;
  const isReserved = kind !== "count" && (limitsTokens(tenant) || limitsTokens(key));
  const need = new Need(caller, request, input, isReserved);
  return kind === "run" ? admitRun(caller, request, address, need) : admitTurn(caller, request, need);
}

/** Millionths of a dollar: also of a budget that is used up, a model without a price has nothing. */
const LEAST_COST = 0.001;

/** What a request will take, as far as can be said: its prompt, and as many tokens as it may put out. */
class Need {
  readonly #caller: Caller;
  readonly #request: CreateRequest;
  readonly isReserved: boolean;
  #items: readonly (InputItem | Item)[];
  #input: number | undefined;

  /** `isReserved`: whether tokens are limited. Else nobody looks at the items, unless their turn is cut off. */
  constructor(caller: Caller, request: CreateRequest, items: readonly InputItem[], isReserved: boolean) {
    this.#caller = caller;
    this.#request = request;
    this.#items = items;
    this.isReserved = isReserved;
  }

  /** The items of the prompt, as they are known now. */
  set items(items: readonly Item[]) {
    this.#items = items;
    this.#input = undefined;
  }

  /** Tokens of the prompt. */
  get input(): number {
    this.#input ??= estimateFrame(this.#request) + estimateTokens(this.#items);
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
}

async function admitTurn(caller: Caller, request: CreateRequest, need: Need): Promise<Admission> {
  const { identity, waitUntil, config } = caller;
  const { counted, tenant, keyId } = identity;
  const lease = leaseOf(identity, caller.quotas);
  if (!lease || !counted) throw new TypeError(`${tenant}:${keyId} is not counted.`);
  const reservation: Reservation = await lease.take(need.amounts, counted, waitUntil);
  caller.tell?.(rateHeaders(reservation.status));
  return {
    expect: need.isReserved
      ? (items) => {
          need.items = items;
          const { tokens, cost } = need.amounts;
          return reservation.raise(tokens, cost);
        }
      : undefined,
    handOver: () => undefined,
    takeBack: () => {},
    end(result) {
      const { prices } = config.keys;
      const asked = { model: request.model ?? modelOf(result), estimatedInput: () => need.input };
      reservation.end(result && usageOfTurn(result, asked, prices));
    },
  };
}

async function admitRun(
  caller: Caller,
  { model }: CreateRequest,
  { home, turn }: TurnAddress,
  need: Need,
): Promise<Admission> {
  const { identity, quotas, waitUntil } = caller;
  const { tenant, keyId, counted } = identity;
  if (!counted) return UNCOUNTED;
  const reservation: RunReservation = {
    holder: `run:${home}${turn}`,
    tenant,
    keyId,
    limits: counted,
    ...need.amounts,
    estimatedInput: need.input,
    ...(model != null && { model }),
  };
  const stub = quotas.getByName(tenant);
  caller.tell?.(rateHeaders(await reserveRun(reservation, stub)));
  let isMine = true;
  return {
    // Its home knows what it continues.
    expect: undefined,
    handOver() {
      isMine = false;
      return reservation;
    },
    takeBack() {
      isMine = true;
    },
    end() {
      if (!isMine) return;
      isMine = false;
      // Where that fails, the reservation is over when nobody has heard of the run for a while.
      waitUntil(endRun(reservation, stub, undefined, false).catch(() => {}));
    },
  };
}

/** Tokens, as they were counted or estimated. */
export interface TokenCount {
  input: number;
  cached: number;
  output: number;
}

/** What a request to one of vLLM's own endpoints has reserved. */
export interface PassedAdmission {
  /** What was used counts, the rest is given back; undefined: nothing was. Only the first word counts. */
  end(used: TokenCount | undefined): void;
}

/**
 * The same for a request to one of vLLM's own endpoints. `most` is what it will take. Undefined where nothing is counted. Throws as
 * `admit` does.
 */
export async function admitPassed(
  { identity, quotas, waitUntil, config, tell }: Caller,
  model: string,
  most: () => TokenCount,
): Promise<PassedAdmission | undefined> {
  const { counted } = identity;
  const lease = leaseOf(identity, quotas);
  if (!counted || !lease) return undefined;
  const { prices } = config.keys;
  const amountsOf = (count: TokenCount) => ({
    tokens: count.input + count.output,
    cost: Math.max(costOf(model, count, prices), LEAST_COST),
  });
  const isReserved = limitsTokens(counted.tenant) || limitsTokens(counted.key);
  const amounts = isReserved ? amountsOf(most()) : { tokens: 0, cost: 0 };
  const reservation = await lease.take(amounts, counted, waitUntil);
  tell?.(rateHeaders(reservation.status));
  return {
    end: (used) => reservation.end(used && { model, requests: 1, ...used, cost: costOf(model, used, prices) }),
  };
}

function limitsTokens(grants: Grants | null): boolean {
  return grants?.tokens_per_minute != null || grants?.budget != null;
}

/** The model that answered a request which named none. */
function modelOf(result: TurnResult | undefined): string {
  const { model } = (result ? JSON.parse(result.closed.head) : {}) as { model?: string };
  return model ?? "unknown";
}
