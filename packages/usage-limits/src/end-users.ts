import { type Account, type Answer, Ledger, MAX_LIFETIME_MS, type Report } from "./ledger.ts";

/** The maximum of counted end users of a tenant. Clients choose the ids, and may send any number. */
const MAX_END_USERS = 10_000;

/** Separates the ids of an end user and of a key in the name of an account. No id has it. */
const BETWEEN = "/";

/** True for the name of an end user's account, not a key's. */
export function isOfEndUser(account: string): boolean {
  return account.includes(BETWEEN);
}

/** The accounts to store, and the end users without any account left. */
export interface EndUserChanges {
  accounts: (readonly [name: string, account: Account])[];
  /** Prefixes of the names of their accounts. */
  forgotten: string[];
}

/**
 * The ledgers of a tenant's end users, one each: their usage through each key, and through all of them. Nothing counts
 * of an end user who was idle for two minutes, so it is dropped. Beyond `MAX_END_USERS` the one idle for longest is
 * dropped. Pure, as the ledger is.
 */
export class EndUsers {
  /** By id; the one idle for longest first. */
  readonly #users = new Map<string, { ledger: Ledger; at: number }>();
  #changes: EndUserChanges = { accounts: [], forgotten: [] };

  /** `accounts` are the stored ones, by name. `now` in Unix milliseconds. */
  constructor(accounts: Iterable<readonly [name: string, account: Account]> = [], now = 0) {
    const kept = Map.groupBy(accounts, ([name]) => name.split(BETWEEN)[0] ?? "");
    for (const [user, own] of kept) {
      const byKey = own.map(([name, account]) => [name.slice(user.length + BETWEEN.length), account] as const);
      this.#users.set(user, { ledger: new Ledger(byKey), at: now });
    }
  }

  /** Takes a report on an end user, and grants its wants, as the ledger of a key does. */
  take(report: Report, now: number): Answer {
    const { endUser: user = "" } = report;
    const ledger = this.#users.get(user)?.ledger ?? new Ledger();
    this.#users.delete(user);
    this.#users.set(user, { ledger, at: now });
    const answer = ledger.take(report, now);
    for (const [key, account] of ledger.takeChanged()) {
      this.#changes.accounts.push([`${user}${BETWEEN}${key}`, account]);
    }
    this.#forget(now);
    return answer;
  }

  /** The changes since the last call. */
  takeChanges(): EndUserChanges {
    const changes = this.#changes;
    this.#changes = { accounts: [], forgotten: [] };
    return changes;
  }

  #forget(now: number): void {
    for (const [user, { at }] of this.#users) {
      if (this.#users.size <= MAX_END_USERS && Math.abs(now - at) <= MAX_LIFETIME_MS) return;
      this.#users.delete(user);
      this.#changes.forgotten.push(user + BETWEEN);
    }
  }
}
