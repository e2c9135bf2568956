import type { Config } from "../config/index.ts";
import { type HomeRows, KEY_LIFETIME_MS } from "./home-rows.ts";

/**
 * The home's own work: its alarm finds runs whose process died, tells of ends of runs and removes what has expired.
 * A home in which nothing is left gives its storage back.
 */

/** The sweep runs no oftener than this. */
const MIN_SWEEP_INTERVAL_MS = 3_600_000;

/** How soon the alarm looks after live runs: a run whose process died is found within this time after that came back. */
const WATCHDOG_MS = 30_000;

/**
 * So long after something was stored, a home makes sure that its tenant's quota knows of it, where it is counted, and that its responses are
 * listed, where there is a list: whoever should have told it may have died.
 */
const TELL_AGAIN_MS = 3_600_000;

/** When it tries again, where the quota cannot be reached. */
const TELL_RETRY_MS = 300_000;

/** The runs of the home, as far as housekeeping needs them. */
export interface HousekeptRuns {
  readonly liveRuns: number;
  resumeRuns(): void;
}

/** A creation time, Unix milliseconds: a response that was created then or before has expired. */
export function oldestOf({ retentionMs }: Config): number {
  return retentionMs === 0 ? -1 : Date.now() - retentionMs;
}

export class Housekeeping {
  readonly #storage: DurableObjectStorage;
  readonly #rows: HomeRows;
  readonly #runs: HousekeptRuns;
  readonly #config: () => Config;
  /** When the alarm rings; null: not at all; undefined: not asked yet. */
  #alarmAt: number | null | undefined;
  #sweptAt = 0;

  constructor(storage: DurableObjectStorage, rows: HomeRows, runs: HousekeptRuns, config: () => Config) {
    this.#storage = storage;
    this.#rows = rows;
    this.#runs = runs;
    this.#config = config;
  }

  /** Finds out when the alarm rings. Where that is known, what sets it does so before it first waits. */
  async open(): Promise<void> {
    if (this.#alarmAt !== undefined) return;
    const known = await this.#storage.getAlarm();
    // Another call may have set or released the alarm while this one waited.
    if (this.#alarmAt === undefined) this.#alarmAt = known;
  }

  /** Tells whether the alarm is known to be set. */
  get hasAlarm(): boolean {
    return typeof this.#alarmAt === "number";
  }

  /** The alarm rings. It generates nothing itself. */
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
    // One that goes as a whole tells it as it goes.
    if (due.length === 0 && (await this.releaseIfEmpty())) return;
    if (isCounted && !(await this.#rows.stored.tell())) due.push(now + TELL_RETRY_MS);
    if (due.length > 0) await this.#setAlarm(Math.min(...due));
  }

  /** The home has a run from now on. */
  watchRuns(): Promise<void> {
    return this.#setAlarm(Date.now() + WATCHDOG_MS);
  }

  /**
   * The home keeps a turn that was created at `createdAt` (Unix milliseconds), until it expires. `isCounted`: and what it keeps is
   * to be told.
   */
  async retain(createdAt: number, isCounted = false): Promise<void> {
    const { retentionMs } = this.#config();
    const expires = retentionMs > 0 ? createdAt + retentionMs : Number.POSITIVE_INFINITY;
    const tells = isCounted || this.#rows.index.isOn ? Date.now() + TELL_AGAIN_MS : Number.POSITIVE_INFINITY;
    const at = Math.min(expires, tells);
    if (Number.isFinite(at)) await this.#setAlarm(at);
  }

  /** Removes something from a home. Where that is counted, the quota is told before this resolves, or by the alarm. */
  async removing<T>(remove: () => T): Promise<T> {
    if (!this.#rows.stored.isCounted()) return remove();
    await this.retain(Number.POSITIVE_INFINITY, true);
    const removed = remove();
    await this.#rows.stored.tell();
    return removed;
  }

  /** Takes a response off the list of its tenant, before it is removed or changed. Where the list cannot be reached, the alarm sees to it. */
  async unlist(turn: string): Promise<void> {
    if (!this.#rows.index.isOn) return;
    await this.retain(Number.POSITIVE_INFINITY);
    await this.#rows.index.remove(turn);
  }

  /** The home keeps an idempotency key from now on. */
  retainKey(): Promise<void> {
    return this.#setAlarm(Date.now() + KEY_LIFETIME_MS);
  }

  /** Something may be left that nobody needs any more. */
  sweepSoon(): Promise<void> {
    return this.#setAlarm(Date.now() + MIN_SWEEP_INTERVAL_MS);
  }

  /** Has the tenant's webhooks told of the ends of runs, and sees to those that they could not be told of. */
  async tellWebhooks(): Promise<void> {
    await this.#rows.webhooks.handOver();
    const next = this.#rows.webhooks.nextDue();
    if (next !== null) await this.#setAlarm(next);
  }

  /**
   * Gives the object's storage back when nothing is left in it that is needed, but perhaps the turn `except`, which goes with it: that is
   * no row written. Tells whether it did.
   */
  async releaseIfEmpty(except?: string): Promise<boolean> {
    const isNeeded = () => this.#runs.liveRuns > 0 || !this.#rows.isEmpty(except) || this.#rows.index.isBehind;
    if (isNeeded()) return false;
    if (this.#rows.stored.isCounted()) {
      // An object without storage has no alarm that could tell it later.
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

  /** Gives the storage back, whatever is in it. */
  async erase(): Promise<void> {
    if (this.#rows.stored.isCounted()) await this.#rows.stored.tell({});
    const deleted = this.#rows.deleteAll();
    this.#alarmAt = null;
    await deleted;
  }

  /** Removes turns that have outlived their time; returns when there will be more to remove. */
  #sweepTurns(now: number): number | null {
    const { retentionMs } = this.#config();
    if (this.#runs.liveRuns === 0) this.#rows.sweepItems();
    if (retentionMs === 0) return null;
    // The storage goes as a whole.
    if (this.#runs.liveRuns === 0 && this.#rows.isEmpty()) return null;
    // While runs live the alarm rings often.
    if (this.#runs.liveRuns === 0 || now - this.#sweptAt >= MIN_SWEEP_INTERVAL_MS) {
      this.#rows.sweepTurns();
      this.#sweptAt = now;
    }
    const oldest = this.#rows.turns.oldestLiving();
    if (oldest === null && this.#rows.turns.isEmpty()) return null;
    return Math.max((oldest ?? now) + retentionMs, now + MIN_SWEEP_INTERVAL_MS);
  }

  /** Makes sure that the alarm rings at `at` or before. */
  async #setAlarm(at: number): Promise<void> {
    if (this.#alarmAt === undefined) await this.open();
    if (this.#alarmAt != null && this.#alarmAt <= at) return;
    this.#alarmAt = at;
    await this.#storage.setAlarm(at);
  }
}
