import { logLine } from "@responses-edge/bounded-io/json-text";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { estimateFrame, estimateTokens } from "@responses-edge/responses-api/estimate";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { Model } from "@responses-edge/turn/contract/engine";
import type { TurnResult } from "@responses-edge/turn/turn";
import {
  type Amounts,
  type CountedLimits,
  costOf,
  MAX_LIFETIME_MS,
  NOTHING,
  NOTHING_STORED,
  type Prices,
  type QuotaStub,
  type Report,
  type Status,
  type Stored,
  tighter,
  type UsageEntry,
  usedIn,
} from "@responses-edge/usage-limits";
import type { Env } from "../../env.ts";
import type { EndUser } from "./allowances.ts";
import { limitExceeded, limitsUnavailable } from "./refusal.ts";
import { usageOfTurn } from "./usage.ts";

/**
 * The reservation of a run in its caller's limits. The Worker makes it, so that a refusal comes before the run begins.
 * The run's home renews it, and its outbox reports the use at the end. If the home dies, the reservation is free again after a
 * while; the resumed run reserves it anew, and is never refused.
 */

/** The form in the run's row. */
export interface RunReservation {
  /** Identifies the reservation. */
  holder: string;
  tenant: string;
  keyId: string;
  limits: CountedLimits;
  tokens: number;
  cost: number;
  /** The amounts that it may store. */
  stored: Stored;
  /** The estimated length of the prompt, in tokens. */
  estimatedInput: number;
  /** As the request names it; absent if it names none. */
  model?: string;
  /** The end user for whom it counts as well, and the limits of each end user. */
  endUser?: EndUser & { limits: CountedLimits };
}

/** How often a home renews. */
const RUN_RENEW_MS = 30_000;

/** Reserves what a run needs. Throws the 429 of a limit, and the 503 if the quota cannot be asked. */
export async function reserveRun(reservation: RunReservation, stub: QuotaStub): Promise<Status> {
  const need: Amounts = { ...NOTHING, ...amountsOf(reservation), requests: 1 };
  const want = { least: need, needed: need, soon: NOTHING };
  const parts = partsOf(reservation);
  const ask = (part: RunReservation) => stub.exchange({ ...reportOf(part, 0), want }, []);
  const answers = await Promise.all(parts.map(ask)).catch((error: unknown) => {
    throw limitsUnavailable(error);
  });
  const refused = answers.findIndex(({ obstacle }) => obstacle !== undefined);
  const { obstacle, status = {} } = answers[refused] ?? {};
  if (!obstacle) return answers.map((answer) => answer.status).reduce(tighter, {});
  // Gives back a part that was admitted.
  await Promise.all(parts.map((part) => stub.exchange(reportOf(part, 1), []))).catch(() => {});
  throw limitExceeded(obstacle, status, parts[refused] ?? reservation);
}

/** The reservation in the key's limits, and the one in the end user's, if there is one. Storage is not limited by end user. */
function partsOf(reservation: RunReservation): RunReservation[] {
  const { endUser, ...own } = reservation;
  return endUser ? [own, { ...reservation, limits: endUser.limits, stored: NOTHING_STORED }] : [own];
}

/** The use of a run that has ended. */
export interface RunUse {
  reservation: RunReservation;
  /** Empty if the run never began. */
  usage: readonly UsageEntry[];
  hasRenewed: boolean;
}

/** Ends the reservation of a run with its use. Rejects if the quota does not answer. */
export async function endRun({ reservation, usage, hasRenewed }: RunUse, stub: QuotaStub): Promise<void> {
  const used = {
    ...NOTHING,
    requests: hasRenewed ? 0 : 1,
    ...usedIn(usage),
  };
  await Promise.all(partsOf(reservation).map((part) => stub.exchange({ ...reportOf(part, 2), used }, usage)));
}

/** The parts of a run that its usage depends on. */
interface UsingRun {
  model: Model;
  request: CreateRequest;
  input: readonly Item[];
}

/** The reservation of a run, in its home. Does nothing for a run without one. */
export class HeldQuota {
  #reservation: RunReservation | undefined;
  readonly #env: Env;
  #hasRenewed = false;
  #isRaised = false;

  constructor(reservation: RunReservation | undefined, env: Env) {
    this.#reservation = reservation;
    this.#env = env;
  }

  /**
   * Renews the reservation from now on. Gives the function that ends this. `atOnce`: the process has died before, and
   * the reservation may be free by now.
   */
  renew(atOnce: boolean): () => void {
    const reservation = this.#reservation;
    if (!reservation) return () => {};
    const isDue = atOnce || this.#isRaised;
    // Its hold counts as before.
    const held = (part: RunReservation) => ({ ...NOTHING, ...amountsOf(part) });
    const renew = () => {
      this.#hasRenewed = true;
      // A failed renewal is repeated before the reservation is over.
      void this.#tell(async (stub) => {
        const used = { ...NOTHING, requests: 1 };
        const renewed = (part: RunReservation) => ({ ...reportOf(part, 1), held: held(part), used });
        await Promise.all(partsOf(reservation).map((part) => stub.exchange(renewed(part), [])));
      });
    };
    if (isDue) renew();
    const timer = setInterval(renew, RUN_RENEW_MS);
    return () => clearInterval(timer);
  }

  /**
   * Reserves the tokens of the history that the run continues, which its request did not show. The run was admitted,
   * and is not refused for it. To be called before `renew`.
   */
  raise(tokens: number, prices: Prices): void {
    const reservation = this.#reservation;
    // If tokens are not limited, none are reserved.
    if (!reservation || reservation.tokens === 0 || tokens === 0) return;
    const cost = costOf(reservation.model ?? "", { input: tokens, cached: 0, output: 0 }, prices);
    this.#reservation = {
      ...reservation,
      tokens: reservation.tokens + tokens,
      cost: reservation.cost + cost,
      estimatedInput: reservation.estimatedInput + tokens,
    };
    this.#isRaised = true;
  }

  /** The usage of the ended run. */
  usageOf(result: TurnResult, { spec, prices }: { spec: UsingRun; prices: Prices }): UsageEntry[] {
    const { model = spec.model.name, estimatedInput: reserved } = this.#reservation ?? {};
    const estimatedInput = () => reserved ?? estimateFrame(spec.request) + estimateTokens(spec.input);
    return usageOfTurn(result, { model, estimatedInput }, prices);
  }

  /** The use of the ended run, to be reported to its caller's limits; undefined without limits. */
  used(usage: readonly UsageEntry[]): RunUse | undefined {
    const reservation = this.#reservation;
    return reservation && { reservation, usage, hasRenewed: this.#hasRenewed };
  }

  async #tell(tell: (stub: QuotaStub) => Promise<void>): Promise<void> {
    const stub = this.#reservation && this.#env.QUOTAS?.getByName(this.#reservation.tenant);
    try {
      if (stub) await tell(stub);
    } catch (error) {
      const name = error instanceof Error ? error.name : typeof error;
      console.error(logLine({ level: "error", quota_not_told: this.#reservation?.holder, error: name }));
    }
  }
}

function amountsOf({ tokens, cost, stored }: RunReservation): Partial<Amounts> {
  return { tokens, cost, runs: 1, ...stored };
}

function reportOf({ keyId, endUser, limits, holder }: RunReservation, report: number): Omit<Report, "want"> {
  const of = { key: keyId, endUser: endUser?.id, limits, holder };
  return { ...of, report, held: { ...NOTHING }, used: NOTHING, lifetimeMs: MAX_LIFETIME_MS };
}
