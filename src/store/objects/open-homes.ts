import { waitUntil } from "cloudflare:workers";
import { ApiError } from "@responses-edge/responses-api/errors";
import { counted, ownsObjects } from "./ownership.ts";

/**
 * The open homes of this process. It keeps the process below its limit of open files, and lets a home that stores
 * nothing leave no file (docs/storage.md). Homes report their lives (`HomeLife`).
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

let lastCount: { at: number; files: number | null } | undefined;

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
  if (lastCount && at - lastCount.at < maxAge) return lastCount.files;
  const answer = await list.fetch("http://open-file-list/");
  lastCount = { at, files: answer.ok ? (await answer.json<unknown[]>()).length : null };
  return lastCount.files;
}

/** Tells whether a home has a file. */
export async function hasFile(files: Fetcher, id: DurableObjectId): Promise<boolean> {
  const { status } = await files.fetch(fileUrl(id), { method: "HEAD" });
  return status !== 404;
}

/**
 * Removes the files of a home that stores nothing. The home calls it, and ends then: later writes would be lost. False, and
 * nothing is removed, in a process that has handed its objects over: the files are another process's.
 */
export async function removeFiles(files: Fetcher, id: DurableObjectId): Promise<boolean> {
  if (!ownsObjects()) return false;
  await counted(async () => {
    for (const suffix of FILE_SUFFIXES) await files.fetch(fileUrl(id) + suffix, { method: "DELETE" });
  });
  return true;
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

/** How long a call waits for another home to close, and how often it checks. Milliseconds. */
const MAX_WAIT_MS = 2_000;
const POLL_MS = 10;

/** Homes by the names of their objects, as far as closing them needs them. */
export type Homes = FileBindings & { readonly HOME: Pick<DurableObjectNamespace, "getByName" | "idFromName"> };

/**
 * Makes a call of a home, which it opens. The call ends when its answer is there, or the last byte of its answer's body. A
 * home that stores nothing after its last call loses its file. Throws the 503 of a process that has as many homes open as
 * it may, if none closes within `MAX_WAIT_MS`.
 */
export async function inOpenHome<T>(
  homes: Homes,
  name: string,
  call: () => T,
  next?: Continuation,
): Promise<Awaited<T>> {
  const home = beginCall(name, 0) ?? (await enter(homes, name));
  const answered = answerIn(homes, name, home, call, next);
  // The platform drops the promises of a request when its client leaves: the call would never end.
  waitUntil(answered.catch(() => {}));
  return answered;
}

async function answerIn<T>(
  homes: Homes,
  name: string,
  home: OpenHome,
  call: () => T,
  next: Continuation | undefined,
): Promise<Awaited<T>> {
  let delivery: Promise<void> | undefined;
  try {
    const answer = await counted(call);
    if (!(answer instanceof Response && answer.body)) return answer;
    // If the home closed while its bytes are being sent, they would break off.
    const { readable, writable } = new IdentityTransformStream();
    delivery = passOn(answer.body, writable, next);
    return new Response(readable, answer) as Awaited<T>;
  } finally {
    if (delivery) waitUntil(delivery.catch(() => {}).then(() => ended(homes, name, home)));
    else await ended(homes, name, home);
  }
}

/** Asks for the rest of a body that has ended, because its object may have been handed over; gives undefined if there is none. */
export type Continuation = () => Promise<ReadableStream<Uint8Array> | undefined>;

let followedBodies = 0;

/** The number of bodies with a continuation that are being passed on. */
export function followed(): number {
  return followedBodies;
}

/** Passes a body on, with its rest from elsewhere. */
export async function passOn(
  body: ReadableStream<Uint8Array>,
  writable: WritableStream<Uint8Array>,
  next: Continuation | undefined,
): Promise<void> {
  if (!next) return body.pipeTo(writable);
  followedBodies += 1;
  try {
    let isWhole = true;
    for (let rest: ReadableStream<Uint8Array> | undefined = body; rest; rest = await next()) {
      isWhole = await rest.pipeTo(writable, { preventAbort: true, preventClose: true }).then(
        () => true,
        () => false,
      );
    }
    await (isWhole ? writable.close() : writable.abort("The stream was given up."));
  } finally {
    followedBodies -= 1;
  }
}

async function ended(homes: Homes, name: string, home: OpenHome): Promise<void> {
  home.calls -= 1;
  home.usedAt = Date.now();
  // A hand-over may have closed the home: a call would open it again.
  const mayLeave = homes.HOME_FILES && home.calls === 0 && open.get(name) === home;
  if (mayLeave && home.life?.deref()?.mayBeVacant) await leave(homes, name, home, true);
}

/** Begins a call of a home that is not open, or is closing: waits for its end and, if necessary, until another home has closed. */
async function enter(homes: Homes, name: string): Promise<OpenHome> {
  for (const deadline = Date.now() + MAX_WAIT_MS; ; ) {
    const home = beginCall(name, openHomes().has(name) ? Number.POSITIVE_INFINITY : await mostOpenHomes(homes));
    if (home) {
      if (openHomes().size > MANY_HOMES) waitUntil(closeAnother(homes));
      return home;
    }
    if (!openHomes().has(name) && (await closeAnother(homes))) continue;
    if (Date.now() > deadline) throw tooManyOpen();
    await scheduler.wait(POLL_MS);
  }
}

/** Closes the least recently used idle home. False if there is none. */
async function closeAnother(homes: Homes): Promise<boolean> {
  for (const [name, home] of openHomes()) {
    if (home.calls > 0 || home.isLeaving) continue;
    const life = home.life?.deref();
    if (life && !life.isIdle) continue;
    if (!life) homeLeft(name);
    else if (!(await leave(homes, name, home, false))) continue;
    return true;
  }
  return false;
}

/** Closes a home, unless it must stay. Tells whether it has closed. */
async function leave({ HOME }: Homes, name: string, home: OpenHome, onlyIfVacant: boolean): Promise<boolean> {
  home.isLeaving = true;
  const stub = HOME.getByName(name) as unknown as { leave(onlyIfVacant: boolean): Promise<boolean> };
  // The object's instance has ended, and the call with it.
  const hasLeft = await stub.leave(onlyIfVacant).catch(() => true);
  home.isLeaving = false;
  if (hasLeft) homeLeft(name);
  return hasLeft;
}

function tooManyOpen(): ApiError {
  return new ApiError({
    status: 503,
    message: "The server has the maximum number of conversations open. Please retry in a few seconds.",
    code: "server_is_overloaded",
    headers: { "retry-after": "2" },
  });
}
