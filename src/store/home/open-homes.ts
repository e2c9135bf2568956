import type { LeaseSockets } from "./conversation-lock.ts";
import type { ConversationTurns } from "./conversation-turns.ts";
import type { HomeRows } from "./home-rows.ts";
import type { Housekeeping } from "./housekeeping.ts";

/**
 * The open homes of this process. It keeps the process below its limit of open files, and lets a home that stores
 * nothing leave no file (docs/storage.md). `home-calls.ts` counts the calls; homes report their lives.
 *
 * workerd makes the file of an object when the object starts, before any of its code runs, and closes it 10 seconds
 * after the last call. So the Worker of `serve` looks into the folder before it asks a home that may not exist, closes
 * the least recently used home when no more may be open, and makes a home that stores nothing remove its files.
 */

/** The bindings that `serve` gives its Worker. */
export interface FileBindings {
  /** The process's limit of open files, as decimal digits. Without it homes are not counted. */
  OPEN_FILES?: string;
  /** The folder with the databases of the homes: workerd's disk service. Set only with `OPEN_FILES`. */
  HOME_FILES?: Fetcher;
  /** The folder that lists the open files of the process; only Linux has one. */
  OPEN_FILE_LIST?: Fetcher;
}

/** How long a count of the files is reused: for opening a home, and for `/health`, which anybody may call. */
const BELIEVED_MS = 200;
const TOLD_MS = 1_000;

/** A home that lives in this process, as the process sees it. */
export interface LivingHome {
  /** True if it has no work but calls, and no turn has its conversation. */
  readonly isIdle: boolean;
  /** True if, as far as it knows without reading its storage, it stores nothing and will not be given anything soon. */
  readonly mayBeVacant: boolean;
}

export interface OpenHome {
  /** Calls in progress. */
  calls: number;
  /** When the last call began or ended. Unix milliseconds. */
  usedAt: number;
  /** Its instance in this process; undefined before it has begun. */
  life: WeakRef<LivingHome> | undefined;
  /** True if it is about to end: callers wait. */
  isLeaving: boolean;
}

/** Files that an open home takes: its database, the write-ahead log, and the log's index. */
const FILES_PER_HOME = 3;
/** The suffixes of their names. */
const FILE_SUFFIXES = ["", "-wal", "-shm"] as const;

/** Homes may have one third of the process's files, and less if connections take more than the others. */
const HOMES_SHARE = 3;
/** This share of the files stays free for new connections. */
const FREE_SHARE = 8;
/** Homes that may be open in any case. */
const LEAST_HOMES = 4;

/**
 * Beyond this number, a home that opens closes the least recently used idle one. An open home takes a quarter of a megabyte, which workerd's
 * allocator never gives back to the system.
 */
export const MANY_HOMES = 128;

/** With a higher limit, the open files are not counted. */
const MAX_LOOKED_AT = 16_384;

/** workerd closes an object 10 seconds after its last call. A home without a call for this time is closed. */
const CLOSED_AFTER_MS = 12_000;

/** How often closed homes are forgotten. */
const FORGET_EVERY_MS = 1_000;

/** By the names of their objects, least recently used first. */
const open = new Map<string, OpenHome>();
let forgottenAt = 0;

/** The homes that are open, or have closed lately; least recently used first. */
export function openHomes(): ReadonlyMap<string, OpenHome> {
  const now = Date.now();
  if (now - forgottenAt >= FORGET_EVERY_MS) forgetClosed(now);
  return open;
}

/**
 * Notes that a call of a home begins, and that the home is open. Undefined if the call must wait: the home is about to
 * close, or `most` are open.
 */
export function beginCall(name: string, most: number): OpenHome | undefined {
  const known = open.get(name);
  if (known ? known.isLeaving : openHomes().size >= most) return undefined;
  const home = known ?? { calls: 0, usedAt: 0, life: undefined, isLeaving: false };
  home.calls += 1;
  home.usedAt = Date.now();
  open.delete(name);
  open.set(name, home);
  return home;
}

/** Tells whether a home is open. */
export function isOpen(name: string): boolean {
  return open.get(name)?.life?.deref() !== undefined;
}

/** Notes that a home's instance has begun in this process. */
export function homeOpened(name: string, living: LivingHome): void {
  const life = new WeakRef(living);
  const home = open.get(name);
  if (home) home.life = life;
  else open.set(name, { calls: 0, usedAt: Date.now(), life, isLeaving: false });
}

/** Makes callers of a home wait for `homeLeft`, because it is about to end by itself. False if there are calls in progress. */
export function homeLeaves(name: string): boolean {
  const home = open.get(name);
  if (!home || home.calls > 0 || home.isLeaving) return false;
  home.isLeaving = true;
  return true;
}

/** Notes that a home has ended, or is not open. */
export function homeLeft(name: string): void {
  open.delete(name);
}

/** The files of this process, as `/health` shows them. */
export interface FilesInUse {
  limit: number;
  /** Null if the system does not tell. */
  used: number | null;
  homes: { limit: number; open: number };
}

let counted: { at: number; files: number | null } | undefined;

/** How many homes may be open; no limit if they are not counted. */
export async function mostOpenHomes({ OPEN_FILES, OPEN_FILE_LIST: list }: FileBindings): Promise<number> {
  if (OPEN_FILES === undefined) return Number.POSITIVE_INFINITY;
  const limit = Number(OPEN_FILES);
  const used = limit > MAX_LOOKED_AT ? null : await countFiles(list, BELIEVED_MS);
  const others = used === null ? 0 : used - open.size * FILES_PER_HOME;
  const files = Math.min(limit / HOMES_SHARE, limit - others - limit / FREE_SHARE);
  return Math.max(LEAST_HOMES, Math.floor(files / FILES_PER_HOME));
}

/** Undefined if homes are not counted. */
export async function filesInUse(bindings: FileBindings): Promise<FilesInUse | undefined> {
  const { OPEN_FILES: limit, OPEN_FILE_LIST: list } = bindings;
  if (limit === undefined) return undefined;
  const used = await countFiles(list, TOLD_MS);
  return { limit: Number(limit), used, homes: { limit: await mostOpenHomes(bindings), open: openHomes().size } };
}

/** Tells whether the files that stay free for new connections are in use. */
export async function areFilesNearlyUsed(bindings: FileBindings): Promise<boolean> {
  const files = await filesInUse(bindings);
  return files?.used != null && files.used > files.limit * (1 - 1 / FREE_SHARE);
}

/** How many files this process has open, counted at most `maxAge` milliseconds ago; null if the system does not tell. */
async function countFiles(list: Fetcher | undefined, maxAge: number): Promise<number | null> {
  if (!list) return null;
  const at = Date.now();
  if (counted && at - counted.at < maxAge) return counted.files;
  const answer = await list.fetch("http://open-file-list/");
  counted = { at, files: answer.ok ? (await answer.json<unknown[]>()).length : null };
  return counted.files;
}

/** Tells whether a home has a file. */
export async function hasFile(files: Fetcher, id: DurableObjectId): Promise<boolean> {
  const { status } = await files.fetch(fileUrl(id), { method: "HEAD" });
  return status !== 404;
}

/** Removes the files of a home that stores nothing. The home calls it, and ends then: later writes would be lost. */
export async function removeFiles(files: Fetcher, id: DurableObjectId): Promise<void> {
  for (const suffix of FILE_SUFFIXES) await files.fetch(fileUrl(id) + suffix, { method: "DELETE" });
}

/** workerd names the database of an object by its id. */
function fileUrl(id: DurableObjectId): string {
  return `http://home-files/${id}.sqlite`;
}

function forgetClosed(now: number): void {
  forgottenAt = now;
  for (const [name, { calls, usedAt, life, isLeaving }] of open) {
    if (calls > 0 || isLeaving || life?.deref()?.isIdle === false) continue;
    if (now - usedAt < CLOSED_AFTER_MS) break;
    open.delete(name);
  }
}

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
