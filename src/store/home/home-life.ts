import {
  type FileBindings,
  homeLeaves,
  homeLeft,
  homeOpened,
  type LivingHome,
  removeFiles,
} from "../objects/open-homes.ts";
import type { LeaseSockets } from "./conversation-lock.ts";
import type { ConversationTurns } from "./conversation-turns.ts";
import type { HomeRows } from "./home-rows.ts";
import type { Housekeeping } from "./housekeeping.ts";

/**
 * The life of a home's instance in its process. It ends when other homes need the files, or when the home stores
 * nothing (docs/storage.md).
 */
export class HomeLife implements LivingHome {
  readonly #state: DurableObjectState;
  readonly #files: Fetcher | undefined;
  readonly #rows: HomeRows;
  readonly #housekeeping: Housekeeping;
  readonly #conversation: Pick<ConversationTurns, "isEntered">;
  readonly #sockets: LeaseSockets;
  /** Runs, readers, deliveries, alarms: all work except calls. */
  #underWay = 0;
  #awaitsTurn = false;

  /** Begins the life of an object. */
  constructor(
    state: DurableObjectState,
    { OPEN_FILES, HOME_FILES }: FileBindings,
    rows: HomeRows,
    housekeeping: Housekeeping,
    conversation: Pick<ConversationTurns, "isEntered">,
    sockets: LeaseSockets,
  ) {
    this.#state = state;
    this.#files = HOME_FILES;
    this.#rows = rows;
    this.#housekeeping = housekeeping;
    this.#conversation = conversation;
    this.#sockets = sockets;
    if (OPEN_FILES !== undefined) homeOpened(this.#name, this);
  }

  get isIdle(): boolean {
    return this.#underWay === 0 && !this.#conversation.isEntered;
  }

  get mayBeVacant(): boolean {
    return this.#underWay === 0 && !this.#awaitsTurn && !this.#housekeeping.hasAlarm && this.#rows.mayBeVacant;
  }

  get #name(): string {
    return this.#state.id.name ?? "";
  }

  /** Notes that a turn is about to be settled: the home is not vacant from now on. */
  awaitTurn(): void {
    this.#awaitsTurn = true;
  }

  /** Counts work that is no call. */
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
   * Ends this instance, so that the object's files are closed, and removes them if it stores nothing; the call does not
   * return then. Gives false if it must stay: it has work, or it stores something and `onlyIfVacant`. To be called
   * while nobody else calls the object.
   */
  async leave(onlyIfVacant: boolean): Promise<boolean> {
    const { storage } = this.#state;
    const files = this.#files;
    const isVacant = files !== undefined && this.#rows.isVacant() && (await storage.getAlarm()) === null;
    if (onlyIfVacant && !isVacant) return false;
    if (isVacant) await removeFiles(files, this.#state.id);
    // All writes reach the disk before the object ends.
    else await storage.sync();
    // Holders of the conversation would lose it.
    if (!isVacant && (!this.isIdle || this.#sockets.isAnyOpen)) return false;
    return this.#state.abort("It has left.") as never;
  }

  /** The same after an alarm that has found nothing needed. */
  async leaveIfVacant(): Promise<void> {
    if (!this.#files || !this.mayBeVacant || !homeLeaves(this.#name)) return;
    await removeFiles(this.#files, this.#state.id);
    // After the alarm has ended, because an aborted one rings again.
    setTimeout(() => {
      homeLeft(this.#name);
      this.#state.abort("It has left.");
    }, 0);
  }
}
