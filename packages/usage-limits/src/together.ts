import type { Reservation } from "./allowance.ts";
import type { Status } from "./ledger.ts";

/**
 * Takes from several allowances in parallel: from all of them, or from none. Gives one reservation for all. Rejects
 * with the first refusal, which counts nowhere.
 */
export async function takeTogether(takes: readonly (() => Reservation | Promise<Reservation>)[]): Promise<Reservation> {
  const asked = await Promise.allSettled(takes.map(async (take) => take()));
  const taken = asked.filter((each) => each.status === "fulfilled").map(({ value }) => value);
  const refused = asked.find((each) => each.status === "rejected");
  if (refused) {
    for (const reservation of taken) reservation.cancel();
    throw refused.reason;
  }
  return {
    status: taken.map(({ status }) => status).reduce(tighter, {}),
    async raise(tokens, cost) {
      await Promise.all(taken.map((reservation) => reservation.raise(tokens, cost)));
    },
    end(usage) {
      for (const reservation of taken) reservation.end(usage);
    },
    cancel() {
      for (const reservation of taken) reservation.cancel();
    },
  };
}

/** Joins two statuses: the one with the smaller rest counts. */
export function tighter(one: Status, other: Status): Status {
  const least = (kind: keyof Status) => {
    const [a, b] = [one[kind], other[kind]];
    return a && b ? (a.remaining <= b.remaining ? a : b) : (a ?? b);
  };
  return { requests: least("requests"), tokens: least("tokens") };
}
