import type { Config } from "../../config/index.ts";
import { type HomeRows, KEY_LIFETIME_MS } from "./home-rows.ts";

/**
 * The home's own work: its alarm finds runs whose process died, delivers the messages of the outbox and removes expired turns.
 * A home in which nothing is left removes its storage.
 */

/** The sweep runs at most this often. */
const MIN_SWEEP_INTERVAL_MS = 3_600_000;

/** Interval of the alarm while there are live runs: a run whose process died is found within this time after its object starts again. */
const WATCHDOG_MS = 30_000;

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
    if (this.#runs.liveRuns > 0 || this.#rows.runs.turns().length > 0) due.push(now + WATCHDOG_MS);
    for (const sweep of [this.#rows.idempotency.sweep(now), this.#sweepTurns(now)]) if (sweep !== null) due.push(sweep);
    await this.#rows.outbox.deliver();
    if (due.length === 0 && (await this.releaseIfEmpty())) return;
    const next = this.#rows.outbox.nextDue();
    if (next !== null) due.push(next);
    if (due.length > 0) await this.wake(Math.min(...due));
  }

  /** Sets the alarm, because the home has a run now. */
  watchRuns(): Promise<void> {
    return this.wake(Date.now() + WATCHDOG_MS);
  }

  /** Sets the alarm for a stored turn that was created at `createdAt` (Unix milliseconds) and will expire. */
  async retain(createdAt: number): Promise<void> {
    const { retentionMs } = this.#config();
    if (retentionMs > 0) await this.wake(createdAt + retentionMs);
  }

  /** Sets the alarm for an idempotency key that is stored from now on. */
  retainKey(): Promise<void> {
    return this.wake(Date.now() + KEY_LIFETIME_MS);
  }

  /** Sets the alarm, because unneeded rows may be left. */
  sweepSoon(): Promise<void> {
    return this.wake(Date.now() + MIN_SWEEP_INTERVAL_MS);
  }

  /**
   * Removes the object's storage if nothing needed is left in it, except perhaps the turn `except`, which is removed
   * with it: that writes no row. Tells whether it did.
   */
  async releaseIfEmpty(except?: string): Promise<boolean> {
    if (this.#runs.liveRuns > 0 || !this.#rows.isEmpty(except)) return false;
    if (!this.#rows.outbox.isEmpty) {
      // An object without storage has no alarm to deliver anything later.
      await this.wake(this.#rows.outbox.nextDue() ?? Date.now());
      return false;
    }
    const deleted = this.#rows.deleteAll();
    this.#alarmAt = null;
    await deleted;
    return true;
  }

  /** Removes the storage, whatever is in it, and its messages to other objects. */
  async erase(): Promise<void> {
    await this.#rows.outbox.forget();
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

  /** Sets the alarm to `at` (Unix milliseconds), unless it rings earlier. */
  async wake(at: number): Promise<void> {
    if (this.#alarmAt === undefined) await this.open();
    if (this.#alarmAt != null && this.#alarmAt <= at) return;
    this.#alarmAt = at;
    await this.#storage.setAlarm(at);
  }
}
