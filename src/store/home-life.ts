import type { HomeRows } from "./home-rows.ts";
import type { Housekeeping } from "./housekeeping.ts";
import type { LeaseSockets } from "./lease-sockets.ts";
import { type FileBindings, homeLeaves, homeLeft, homeOpened, type LivingHome, removeFiles } from "./open-homes.ts";

/** The life of a home in its process: it ends when its files are wanted for others, or when it keeps nothing (docs/storage.md). */
export class HomeLife implements LivingHome {
  readonly #state: DurableObjectState;
  readonly #files: Fetcher | undefined;
  readonly #rows: HomeRows;
  readonly #housekeeping: Housekeeping;
  readonly #sockets: LeaseSockets;
  /** Runs, readers, deliveries, alarms: all that is under way besides calls. */
  #underWay = 0;
  #awaitsTurn = false;

  /** Begins the life of an object. */
  constructor(
    state: DurableObjectState,
    { OPEN_FILES, HOME_FILES }: FileBindings,
    rows: HomeRows,
    housekeeping: Housekeeping,
    sockets: LeaseSockets,
  ) {
    this.#state = state;
    this.#files = HOME_FILES;
    this.#rows = rows;
    this.#housekeeping = housekeeping;
    this.#sockets = sockets;
    if (OPEN_FILES !== undefined) homeOpened(this.#name, this);
  }

  get isIdle(): boolean {
    return this.#underWay === 0;
  }

  get mayBeVacant(): boolean {
    return this.#underWay === 0 && !this.#awaitsTurn && !this.#housekeeping.hasAlarm && this.#rows.mayBeVacant;
  }

  get #name(): string {
    return this.#state.id.name ?? "";
  }

  /** A turn is about to be settled: the home is not vacant from now on. */
  awaitTurn(): void {
    this.#awaitsTurn = true;
  }

  /** Does something that is no call. */
  async during(work: () => Promise<void>): Promise<void> {
    this.#underWay += 1;
    try {
      await work();
    } finally {
      this.#underWay -= 1;
    }
  }

  /** Keeps the object alive until a promise has settled. */
  waitUntil(promise: Promise<unknown>): void {
    this.#underWay += 1;
    this.#state.waitUntil(promise.finally(() => (this.#underWay -= 1)));
  }

  /**
   * Ends this life, so that the object's files are closed, and removes them where it keeps nothing: the call does not come
   * back then. Gives false where it stays: something is under way, or it keeps something and `onlyIfVacant`. To be called while nobody
   * else calls the object.
   */
  async leave(onlyIfVacant: boolean): Promise<boolean> {
    const { storage } = this.#state;
    const files = this.#files;
    const isVacant = files !== undefined && this.#rows.isVacant() && (await storage.getAlarm()) === null;
    if (onlyIfVacant && !isVacant) return false;
    if (isVacant) await removeFiles(files, this.#state.id);
    // What was written is on the disk before the object ends.
    else await storage.sync();
    // Whoever holds the conversation would lose it.
    if (!isVacant && (!this.isIdle || this.#sockets.isAnyOpen)) return false;
    return this.#state.abort("It has left.") as never;
  }

  /** The same where the alarm has found nothing that is needed. */
  async leaveIfVacant(): Promise<void> {
    if (!this.#files || !this.mayBeVacant || !homeLeaves(this.#name)) return;
    await removeFiles(this.#files, this.#state.id);
    // After the alarm: one that breaks off rings again.
    setTimeout(() => {
      homeLeft(this.#name);
      this.#state.abort("It has left.");
    }, 0);
  }
}
