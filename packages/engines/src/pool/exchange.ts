import { processes } from "./admission.ts";
import { noteShares, takeDemands } from "./server-load.ts";
import type { ServerDemand, ServerShare } from "./shares.ts";

/**
 * The exchange of this process with the board about the servers with a limit. Requests to such servers make it, beside their own work:
 * none waits for it, and without an answer the process has its even part of the limit.
 */

type Exchange = (demands: readonly ServerDemand[]) => Promise<readonly ServerShare[]>;

let exchange: Exchange | undefined;
let exchangedAt = Number.NEGATIVE_INFINITY;

/** Sets the way to the board. `count`: the processes that share a limit until the board knows them. */
export function exchangeBy(way: Exchange, count: number): void {
  exchange = way;
  processes.count = count;
}

/** The time between two exchanges of a process: while its requests wait, and while none does. Milliseconds. */
const [WAITING_MS, CALM_MS] = [100, 1_000];

/** Exchanges with the board, if it is time. `waits`: the caller waits for a server. */
export function exchangeIfDue(now: number, waits: boolean): void {
  if (!exchange || Math.abs(now - exchangedAt) < (waits ? WAITING_MS : CALM_MS)) return;
  const demands = takeDemands();
  if (demands.length === 0) return;
  exchangedAt = now;
  processes.askedAt ??= now;
  exchange(demands).then(
    (shares) => {
      processes.askedAt = undefined;
      noteShares(shares, Date.now());
    },
    () => {},
  );
}
