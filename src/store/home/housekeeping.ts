import type { Config } from "../../config/index.ts";
import { type HomeRows, KEY_LIFETIME_MS } from "./home-rows.ts";

/**
 * The home's own work: its alarm finds runs whose process died, announces the ends of runs and removes expired turns. A
 * home in which nothing is left removes its storage.
 */

/** The sweep runs at most this often. */
const MIN_SWEEP_INTERVAL_MS = 3_600_000;

/** Interval of the alarm while there are live runs: a run whose process died is found within this time after its object starts again. */
const WATCHDOG_MS = 30_000;

/**
 * This long after something was stored, a counted home makes sure that its tenant's quota knows of it, and a listed
 * home that its responses are in the list: the process that should have reported them may have died.
 */
const TELL_AGAIN_MS = 3_600_000;

/** The pause before another attempt, if the quota cannot be reached. */
const TELL_RETRY_MS = 300_000;

/** The home's runs, as housekeeping needs them. */
export interface HousekeptRuns {
  readonly liveRuns: number;
  resumeRuns(): void;
}

/** A creation time, Unix milliseconds. A response that was created then or earlier has expired. */
export function oldestOf({ retentionMs }: Config): number {
  return retentionMs === 0 ? -1 : Date.now() - retentionMs;
}

export class Housekeeping {
  readonly #storage: DurableObjectStorage;
  readonly #rows: HomeRows;
  readonly #runs: HousekeptRuns;
  readonly #config: () => Config;
  /** The time of the alarm; null: none; undefined: not read yet. */
  #alarmAt: number | null | undefined;
  #sweptAt = 0;

  constructor(storage: DurableObjectStorage, rows: HomeRows, runs: HousekeptRuns, config: () => Config) {
    this.#storage = storage;
    this.#rows = rows;
    this.#runs = runs;
    this.#config = config;
  }

  /** Reads the time of the alarm. Once it is known, the alarm can be set before the first await. */
  async open(): Promise<void> {
    if (this.#alarmAt !== undefined) return;
    const known = await this.#storage.getAlarm();
    // Another call may have set or deleted the alarm during the wait.
    if (this.#alarmAt === undefined) this.#alarmAt = known;
  }

  /** Tells whether the alarm is known to be set. */
  get hasAlarm(): boolean {
    return typeof this.#alarmAt === "number";
  }

  /** Runs the alarm. It generates nothing itself. */
  async ring(): Promise<void> {
    this.#alarmAt = null;
    this.#runs.resumeRuns();
    const now = Date.now();
    const due: number[] = [];
    const isCounted = this.#rows.stored.isCounted();
    if (this.#runs.liveRuns > 0 || this.#rows.runs.turns().length > 0) due.push(now + WATCHDOG_MS);
    await this.#rows.webhooks.handOver();
    const webhook = this.#rows.webhooks.nextDue();
    if (webhook !== null) due.push(Math.max(webhook, now));
    for (const sweep of [this.#rows.idempotency.sweep(now), this.#sweepTurns(now)]) if (sweep !== null) due.push(sweep);
    if (!(await this.#rows.index.compare())) due.push(now + TELL_RETRY_MS);
    // A home that is removed as a whole reports it while it is removed.
    if (due.length === 0 && (await this.releaseIfEmpty())) return;
    if (isCounted && !(await this.#rows.stored.tell())) due.push(now + TELL_RETRY_MS);
    if (due.length > 0) await this.#setAlarm(Math.min(...due));
  }

  /** Sets the alarm, because the home has a run now. */
  watchRuns(): Promise<void> {
    return this.#setAlarm(Date.now() + WATCHDOG_MS);
  }

  /**
   * Sets the alarm for a stored turn that was created at `createdAt` (Unix milliseconds) and will expire. `isCounted`:
   * the stored amount must be reported, too.
   */
  async retain(createdAt: number, isCounted = false): Promise<void> {
    const { retentionMs, listsResponses } = this.#config();
    const expires = retentionMs > 0 ? createdAt + retentionMs : Number.POSITIVE_INFINITY;
    const tells = isCounted || listsResponses ? Date.now() + TELL_AGAIN_MS : Number.POSITIVE_INFINITY;
    const at = Math.min(expires, tells);
    if (Number.isFinite(at)) await this.#setAlarm(at);
  }

  /** Removes something from a home. If its storage is counted, the quota is told before this resolves, or by the alarm. */
  async removing<T>(remove: () => T): Promise<T> {
    if (!this.#rows.stored.isCounted()) return remove();
    await this.retain(Number.POSITIVE_INFINITY, true);
    const removed = remove();
    await this.#rows.stored.tell();
    return removed;
  }

  /** Removes a response from its tenant's list, before it is deleted or changed. If the list cannot be reached, the alarm tries again. */
  async unlist(turn: string): Promise<void> {
    if (!this.#rows.index.isOn) return;
    await this.retain(Number.POSITIVE_INFINITY);
    await this.#rows.index.remove(turn);
  }

  /** Sets the alarm for an idempotency key that is stored from now on. */
  retainKey(): Promise<void> {
    return this.#setAlarm(Date.now() + KEY_LIFETIME_MS);
  }

  /** Sets the alarm, because unneeded rows may be left. */
  sweepSoon(): Promise<void> {
    return this.#setAlarm(Date.now() + MIN_SWEEP_INTERVAL_MS);
  }

  /** Announces the ends of runs to the tenant's webhooks, and schedules those that failed. */
  async tellWebhooks(): Promise<void> {
    await this.#rows.webhooks.handOver();
    const next = this.#rows.webhooks.nextDue();
    if (next !== null) await this.#setAlarm(next);
  }

  /**
   * Removes the object's storage if nothing needed is left in it, except perhaps the turn `except`, which is removed
   * with it: that writes no row. Tells whether it did.
   */
  async releaseIfEmpty(except?: string): Promise<boolean> {
    const isNeeded = () => this.#runs.liveRuns > 0 || !this.#rows.isEmpty(except) || this.#rows.index.isBehind;
    if (isNeeded()) return false;
    if (this.#rows.stored.isCounted()) {
      // An object without storage has no alarm to report it later.
      const isTold = await this.#rows.stored.tell({});
      const isNeededAfterAll = isNeeded();
      if (!isTold || isNeededAfterAll) {
        if (isNeededAfterAll) await this.#rows.stored.tell();
        await this.retain(Number.POSITIVE_INFINITY, true);
        return false;
      }
    }
    const deleted = this.#rows.deleteAll();
    this.#alarmAt = null;
    await deleted;
    return true;
  }

  /** Removes the storage, whatever is in it. */
  async erase(): Promise<void> {
    if (this.#rows.stored.isCounted()) await this.#rows.stored.tell({});
    const deleted = this.#rows.deleteAll();
    this.#alarmAt = null;
    await deleted;
  }

  /** Removes expired turns. Gives the time when the next ones expire. */
  #sweepTurns(now: number): number | null {
    const { retentionMs } = this.#config();
    if (this.#runs.liveRuns === 0) this.#rows.sweepItems();
    if (retentionMs === 0) return null;
    // The storage is removed as a whole.
    if (this.#runs.liveRuns === 0 && this.#rows.isEmpty()) return null;
    // With live runs, the alarm rings often.
    if (this.#runs.liveRuns === 0 || now - this.#sweptAt >= MIN_SWEEP_INTERVAL_MS) {
      this.#rows.sweepTurns();
      this.#sweptAt = now;
    }
    const oldest = this.#rows.turns.oldestLiving();
    if (oldest === null && this.#rows.turns.isEmpty()) return null;
    return Math.max((oldest ?? now) + retentionMs, now + MIN_SWEEP_INTERVAL_MS);
  }

  /** Sets the alarm to `at`, unless it rings earlier. */
  async #setAlarm(at: number): Promise<void> {
    if (this.#alarmAt === undefined) await this.open();
    if (this.#alarmAt != null && this.#alarmAt <= at) return;
    this.#alarmAt = at;
    await this.#storage.setAlarm(at);
  }
}
