import { type Config, loadConfig } from "../../config/index.ts";
import type { Env } from "../../env.ts";
import { setAlarm } from "../objects/alarms.ts";
import { objectLeaves, objectLeft, removeFiles } from "../objects/open-objects.ts";
import { keyOf, nameOf } from "../objects/registry.ts";
import type { LeaseSockets } from "./conversation-lock.ts";
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
  readonly #env: Env;
  /** The time of the alarm; null: none; undefined: not read yet. */
  #alarmAt: number | null | undefined;
  #sweptAt = 0;

  constructor(storage: DurableObjectStorage, rows: HomeRows, runs: HousekeptRuns, env: Env) {
    this.#storage = storage;
    this.#rows = rows;
    this.#runs = runs;
    this.#env = env;
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
    // A response with `store: false` may have been the last one.
    if ((due.length === 0 || this.#rows.isUnused()) && (await this.releaseIfEmpty())) return;
    const next = this.#rows.outbox.nextDue();
    if (next !== null) due.push(next);
    if (due.length > 0) await this.wake(Math.min(...due));
  }

  /** Does the alarm's work if it is due soon: a home that is closed meanwhile would be opened again for it. */
  async ringEarly(): Promise<void> {
    await this.open();
    if (this.#alarmAt == null || this.#alarmAt > Date.now() + WATCHDOG_MS) return;
    await this.ring();
    if (!this.hasAlarm) await this.#storage.deleteAlarm();
  }

  /** Sets the alarm, because the home has a run now. */
  watchRuns(): Promise<void> {
    return this.wake(Date.now() + WATCHDOG_MS);
  }

  /** Sets the alarm for a stored turn that was created at `createdAt` (Unix milliseconds) and will expire. */
  async retain(createdAt: number): Promise<void> {
    const { retentionMs } = loadConfig(this.#env);
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
    const { retentionMs } = loadConfig(this.#env);
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
    await setAlarm(this.#storage, at);
  }
}

/**
 * The life of a home's instance in its process. It ends when other homes need the files, or when the home stores
 * nothing (docs/storage.md).
 */
export class HomeLife {
  readonly #state: DurableObjectState;
  readonly #files: Fetcher | undefined;
  readonly #rows: HomeRows;
  readonly #housekeeping: Housekeeping;
  readonly #isIdle: () => boolean;
  readonly #sockets: LeaseSockets;
  #awaitsTurn = false;

  /** Begins the life of an object. */
  constructor(
    state: DurableObjectState,
    { HOME_FILES }: Env,
    rows: HomeRows,
    housekeeping: Housekeeping,
    isIdle: () => boolean,
    sockets: LeaseSockets,
  ) {
    this.#state = state;
    this.#files = HOME_FILES;
    this.#rows = rows;
    this.#housekeeping = housekeeping;
    this.#isIdle = isIdle;
    this.#sockets = sockets;
  }

  get mayBeVacant(): boolean {
    return !this.#awaitsTurn && !this.#housekeeping.hasAlarm && this.#rows.mayBeVacant && this.#isIdle();
  }

  get #key(): string {
    return keyOf(nameOf("HOME", this.#state.id.name ?? ""));
  }

  /** Notes that a turn is about to be settled: the home is not vacant from now on. */
  awaitTurn(): void {
    this.#awaitsTurn = true;
  }

  /**
   * Ends this instance, so that the object's files are closed, and removes them if it stores nothing; the call does not
   * return then. Gives false if it must stay: it has work, or it stores something and `onlyIfVacant`. To be called
   * while nobody else calls the object.
   */
  async leave(onlyIfVacant: boolean): Promise<boolean> {
    const { storage } = this.#state;
    const files = this.#files;
    const isVacant = files !== undefined && this.#rows.isVacant() && (await storage.getAlarm()) === null;
    if (onlyIfVacant && !isVacant) return false;
    if (!isVacant && this.#isIdle()) await this.#housekeeping.ringEarly();
    const isRemoved = isVacant && (await removeFiles(files, this.#state.id));
    // All writes reach the disk before the object ends.
    if (!isRemoved) await storage.sync();
    // Holders of the conversation would lose it.
    if (!isRemoved && (!this.#isIdle() || this.#sockets.isAnyOpen)) return false;
    return this.#state.abort("It has left.") as never;
  }

  /** The same after an alarm that has found nothing needed. */
  async leaveIfVacant(): Promise<void> {
    if (!this.#files || !this.mayBeVacant || !objectLeaves(this.#key)) return;
    await removeFiles(this.#files, this.#state.id);
    // After the alarm has ended, because an aborted one rings again.
    setTimeout(() => {
      objectLeft(this.#key);
      this.#state.abort("It has left.");
    }, 0);
  }
}
