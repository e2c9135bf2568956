import { logLine } from "@responses-edge/json-text";
import type { Model } from "@responses-edge/turn/engine";
import type { TurnResult } from "@responses-edge/turn/turn";
import {
  type Amounts,
  type CountedLimits,
  costOf,
  limitExceeded,
  limitsUnavailable,
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
  type Used,
  usedIn,
} from "@responses-edge/usage-limits";
import type { EndUser } from "./allowances.ts";
import type { Quota } from "./quota.ts";
import { usageOfTurn } from "./usage.ts";

/**
 * The reservation of a run in its caller's limits. The Worker makes it, because it refuses before the run begins; the
 * home that the run lives in says that it goes on, and in the end what it has used. A home that dies is not heard of for a
 * while, and what was reserved is free again; the run that is resumed reserves it anew, and is never refused.
 */

/** As it stands in the run's row. */
export interface RunReservation {
  /** Names the reservation. */
  holder: string;
  tenant: string;
  keyId: string;
  limits: CountedLimits;
  tokens: number;
  cost: number;
  /** The amounts that it may store; absent of runs that an earlier version has accepted. */
  stored?: Stored;
  /** The estimated length of the prompt, in tokens. */
  estimatedInput: number;
  /** As the request names it; absent where it names none. */
  model?: string;
  /** The end user that it counts for as well, and the limits of each. */
  endUser?: EndUser & { limits: CountedLimits };
}

/** The binding by which homes reach quotas. */
export interface QuotaBinding {
  QUOTAS?: DurableObjectNamespace<Quota>;
}

/** A home is heard of this often. */
const RUN_RENEW_MS = 30_000;

/** Reserves what a run needs. Throws the 429 of a limit, and the 503 where the quota cannot be asked. */
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
  // A part that was let in is free again.
  await Promise.all(parts.map((part) => stub.exchange(reportOf(part, 1), []))).catch(() => {});
  throw limitExceeded(obstacle, status, parts[refused] ?? reservation);
}

/** A reservation in the limits of its key, and the one in those of its end user, if it has one: no end user is limited in what is stored. */
function partsOf(reservation: RunReservation): RunReservation[] {
  const { endUser, ...own } = reservation;
  return endUser ? [own, { ...reservation, limits: endUser.limits, stored: NOTHING_STORED }] : [own];
}

/** Says what the run has used, and that it is over; without usage, that it never began. */
export async function endRun(
  reservation: RunReservation,
  stub: QuotaStub,
  usage: readonly UsageEntry[],
  hasRenewed: boolean,
): Promise<void> {
  const used: Used = {
    ...NO_USE,
    requests: hasRenewed ? 0 : 1,
    ...usedIn(usage),
  };
  await Promise.all(partsOf(reservation).map((part) => stub.exchange({ ...reportOf(part, 2), used }, usage)));
}

/** The reservation of a run, in the home that it lives in; of a run without one, nothing. */
export class HeldQuota {
  #reservation: RunReservation | undefined;
  readonly #env: QuotaBinding;
  #hasRenewed = false;
  #isRaised = false;

  constructor(reservation: RunReservation | undefined, env: QuotaBinding) {
    this.#reservation = reservation;
    this.#env = env;
  }

  /**
   * Says from now on that the run goes on; gives what ends that. `atOnce`: its process has died, and what it had reserved
   * may be free by now.
   */
  renew(atOnce: boolean): () => void {
    const reservation = this.#reservation;
    if (!reservation) return () => {};
    const isDue = atOnce || this.#isRaised;
    // Its hold counts as before.
    const held = (part: RunReservation) => ({ ...NOTHING, ...amountsOf(part) });
    const renew = () => {
      this.#hasRenewed = true;
      // Where it fails, it is said again before the reservation is over.
      void this.#tell(async (stub) => {
        const used = { ...NO_USE, requests: 1 };
        const renewed = (part: RunReservation) => ({ ...reportOf(part, 1), held: held(part), used });
        await Promise.all(partsOf(reservation).map((part) => stub.exchange(renewed(part), [])));
      });
    };
    if (isDue) renew();
    const timer = setInterval(renew, RUN_RENEW_MS);
    return () => clearInterval(timer);
  }

  /**
   * Reserves what the run's prompt has more than its request told, in tokens: what it continues. It has been let in, and is
   * not refused for it. To be called before `renew`.
   */
  raise(tokens: number, prices: Prices): void {
    const reservation = this.#reservation;
    // Where tokens are not limited, none are reserved.
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

  /** Says what the turn has used. Never rejects: a run does not fail because it cannot be counted. */
  async end(result: TurnResult, { spec, prices }: { spec: { model: Model }; prices: Prices }): Promise<void> {
    const reservation = this.#reservation;
    if (!reservation) return;
    const { estimatedInput, model = spec.model.name } = reservation;
    // A run that an earlier version has accepted always tells its usage.
    const tells = reservation.limits.tellsUsage ?? true;
    const usage = tells ? usageOfTurn(result, { model, estimatedInput: () => estimatedInput }, prices) : [];
    await this.#tell((stub) => endRun(reservation, stub, usage, this.#hasRenewed));
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

const NO_USE: Used = { requests: 0, reads: 0, tokens: 0, cost: 0 };

function amountsOf({ tokens, cost, stored }: RunReservation): Partial<Amounts> {
  return { tokens, cost, runs: 1, ...stored };
}

function reportOf({ keyId, endUser, limits, holder }: RunReservation, report: number): Omit<Report, "want"> {
  const of = { key: keyId, endUser: endUser?.id, limits, holder };
  return { ...of, report, held: { ...NOTHING }, used: NOTHING, lifetimeMs: MAX_LIFETIME_MS };
}
