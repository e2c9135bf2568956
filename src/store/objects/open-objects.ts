import { waitUntil } from "cloudflare:workers";
import { ApiError } from "@responses-edge/responses-api/errors";
import { counted, ownsObjects } from "./ownership.ts";
import { type ObjectBinding, type ObjectName, textOf } from "./registry.ts";

/**
 * The open objects of this process. It keeps the process below its limit of open files, and lets a home that stores
 * nothing leave no file (docs/storage.md). Objects report their lives (`OwnedObject`, `HomeLife`).
 *
 * workerd makes the file of an object when the object starts, before any of its code runs, and closes it 10 seconds
 * after the last call. So the Worker of `serve` looks into the folder before it asks a home that may not exist, closes
 * the least recently used object when no more may be open, and makes a home that stores nothing remove its files.
 */

/** The bindings that `serve` gives its Worker. */
export interface FileBindings {
  /** The process's limit of open files, as decimal digits. Without it objects are not counted. */
  OPEN_FILES?: string;
  /** The folder with the databases of the homes: workerd's disk service. Set only with `OPEN_FILES`. */
  HOME_FILES?: Fetcher;
  /** The folder that lists the open files of the process; only Linux has one. */
  OPEN_FILE_LIST?: Fetcher;
}

/** How long a count of the files is reused: for opening an object, and for `/health`, which anybody may call. */
const BELIEVED_MS = 200;
const TOLD_MS = 1_000;

/** An object that lives in this process, as the process sees it. */
export interface LivingObject {
  /** True if it has no work but calls, and nobody holds its conversation. */
  readonly isIdle: boolean;
  /** True if, as far as it knows without reading its storage, it stores nothing and will not be given anything soon. */
  readonly mayBeVacant: boolean;
}

export interface OpenObject {
  readonly name: ObjectName;
  /** Calls in progress. */
  calls: number;
  /** When the last call began or ended. Unix milliseconds. */
  usedAt: number;
  /** Its instance in this process; undefined before it has begun. */
  life: WeakRef<LivingObject> | undefined;
  /** True if it is about to end: callers wait. */
  isLeaving: boolean;
}

/** Files that an open object takes: its database, the write-ahead log, and the log's index. */
const FILES_PER_OBJECT = 3;
/** The suffixes of their names. */
const FILE_SUFFIXES = ["", "-wal", "-shm"] as const;

/** Objects may have one third of the process's files, and less if connections take more than the others. */
const OBJECTS_SHARE = 3;
/** This share of the files stays free for new connections. */
const FREE_SHARE = 8;
/** Objects that may be open in any case. */
const LEAST_OBJECTS = 4;

/**
 * Beyond this number, an object that opens closes the least recently used idle one. An open object takes a quarter of a megabyte, which workerd's
 * allocator never gives back to the system.
 */
export const MANY_OBJECTS = 128;

/** With a higher limit, the open files are not counted. */
const MAX_LOOKED_AT = 16_384;

/** workerd closes an object 10 seconds after its last call. An object without a call for this time is closed. */
const CLOSED_AFTER_MS = 12_000;

/** How often closed objects are forgotten. */
const FORGET_EVERY_MS = 1_000;

/** By their classes and names, least recently used first. */
const open = new Map<string, OpenObject>();
let forgottenAt = 0;

/** The objects that are open, or have closed lately; least recently used first. */
export function openObjects(): ReadonlyMap<string, OpenObject> {
  const now = Date.now();
  if (now - forgottenAt >= FORGET_EVERY_MS) forgetClosed(now);
  return open;
}

/**
 * Notes that a call of an object begins, and that the object is open. Undefined if the call must wait: the object is about to
 * close, or `most` are open. `key`: its class and name.
 */
export function beginCall(key: string, name: ObjectName, most: number): OpenObject | undefined {
  const known = open.get(key);
  if (known ? known.isLeaving : openObjects().size >= most) return undefined;
  const object = known ?? { name, calls: 0, usedAt: 0, life: undefined, isLeaving: false };
  object.calls += 1;
  object.usedAt = Date.now();
  open.delete(key);
  open.set(key, object);
  return object;
}

/** Tells whether an object is open. */
export function isOpen(key: string): boolean {
  return livingObject(key) !== undefined;
}

/** The instance of an object in this process. */
export function livingObject(key: string): LivingObject | undefined {
  return open.get(key)?.life?.deref();
}

/** Notes that an object's instance has begun in this process. */
export function objectOpened(key: string, name: ObjectName, living: LivingObject): void {
  const life = new WeakRef(living);
  const object = open.get(key);
  if (object) object.life = life;
  else open.set(key, { name, calls: 0, usedAt: Date.now(), life, isLeaving: false });
}

/** Makes callers of an object wait for `objectLeft`, because it is about to end by itself. False if there are calls in progress. */
export function objectLeaves(key: string): boolean {
  const object = open.get(key);
  if (!object || object.calls > 0 || object.isLeaving) return false;
  object.isLeaving = true;
  return true;
}

/** Notes that an object has ended, or is not open. */
export function objectLeft(key: string): void {
  open.delete(key);
}

/** The files of this process, as `/health` shows them. */
export interface FilesInUse {
  limit: number;
  /** Null if the system does not tell. */
  used: number | null;
  objects: { limit: number; open: number };
}

let lastCount: { at: number; files: number | null } | undefined;

/** How many objects may be open; no limit if they are not counted. */
export async function mostOpenObjects({ OPEN_FILES, OPEN_FILE_LIST: list }: FileBindings): Promise<number> {
  if (OPEN_FILES === undefined) return Number.POSITIVE_INFINITY;
  const limit = Number(OPEN_FILES);
  const used = limit > MAX_LOOKED_AT ? null : await countFiles(list, BELIEVED_MS);
  const others = used === null ? 0 : used - open.size * FILES_PER_OBJECT;
  const files = Math.min(limit / OBJECTS_SHARE, limit - others - limit / FREE_SHARE);
  return Math.max(LEAST_OBJECTS, Math.floor(files / FILES_PER_OBJECT));
}

/** Undefined if objects are not counted. */
export async function filesInUse(bindings: FileBindings): Promise<FilesInUse | undefined> {
  const { OPEN_FILES: limit, OPEN_FILE_LIST: list } = bindings;
  if (limit === undefined) return undefined;
  const used = await countFiles(list, TOLD_MS);
  return { limit: Number(limit), used, objects: { limit: await mostOpenObjects(bindings), open: openObjects().size } };
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
  for (const [key, { calls, usedAt, life, isLeaving }] of open) {
    if (calls > 0 || isLeaving || life?.deref()?.isIdle === false) continue;
    if (now - usedAt < CLOSED_AFTER_MS) break;
    open.delete(key);
  }
}

/** Most objects that one call closes: it opens itself one, and few others on its way. */
const MAX_CLOSED = 4;

/** How long a call waits for another object to close, and how often it checks. Milliseconds. */
const MAX_WAIT_MS = 2_000;
const POLL_MS = 10;

/** The namespaces of the objects, as far as closing them needs them. */
export type Namespaces = FileBindings & {
  readonly [Binding in ObjectBinding]?: Pick<DurableObjectNamespace, "getByName"> | undefined;
};

/** A call of an object. */
export interface OpeningCall<T> {
  /** The class and the name of the object. */
  key: string;
  name: ObjectName;
  /** True if an object makes the call. It waits for none to close: it is open itself meanwhile, and all could wait for each other. */
  isInner: boolean;
  call: () => T;
}

/**
 * Makes a call of an object, which it opens. The call ends when its answer is there, or the last byte of its answer's body. A
 * home that stores nothing after its last call loses its file. Throws the 503 of a process that has as many objects open as
 * it may, if none closes within `MAX_WAIT_MS`.
 */
export async function inOpenObject<T>(namespaces: Namespaces, opening: OpeningCall<T>): Promise<Awaited<T>> {
  const object = beginCall(opening.key, opening.name, 0) ?? (await enter(namespaces, opening));
  const answered = answerIn(namespaces, opening, object);
  // The platform drops the promises of a request when its client leaves: the call would never end.
  waitUntil(answered.catch(() => {}));
  return answered;
}

async function answerIn<T>(
  namespaces: Namespaces,
  { key, call }: OpeningCall<T>,
  object: OpenObject,
): Promise<Awaited<T>> {
  let delivery: Promise<void> | undefined;
  try {
    const answer = await counted(call);
    if (!(answer instanceof Response && answer.body)) return answer;
    // If the object closed while its bytes are being sent, they would break off.
    const { readable, writable } = new IdentityTransformStream();
    delivery = answer.body.pipeTo(writable);
    return new Response(readable, answer) as Awaited<T>;
  } finally {
    if (delivery) waitUntil(delivery.catch(() => {}).then(() => ended(namespaces, key, object)));
    else await ended(namespaces, key, object);
  }
}

async function ended(namespaces: Namespaces, key: string, object: OpenObject): Promise<void> {
  object.calls -= 1;
  object.usedAt = Date.now();
  // A hand-over may have closed the object: a call would open it again.
  const mayLeave = namespaces.HOME_FILES && object.calls === 0 && open.get(key) === object;
  if (mayLeave && object.life?.deref()?.mayBeVacant) await leave(namespaces, key, object, true);
}

/** Begins a call of an object that is not open, or is closing: waits for its end and, if necessary, until another one has closed. */
async function enter(namespaces: Namespaces, { key, name, isInner }: OpeningCall<unknown>): Promise<OpenObject> {
  for (const deadline = Date.now() + MAX_WAIT_MS; ; ) {
    const most = await mostOpenObjects(namespaces);
    const object = beginCall(key, name, isInner || openObjects().has(key) ? Number.POSITIVE_INFINITY : most);
    if (object) {
      if (!isInner && openObjects().size > Math.min(MANY_OBJECTS, most)) waitUntil(closeOthers(namespaces, most));
      return object;
    }
    if (!openObjects().has(key) && !isInner) {
      const closing = closeAnother(namespaces);
      // The object that it closes would wait for ever if this request's client left in the middle.
      waitUntil(closing);
      if (await closing) continue;
    }
    if (Date.now() > deadline) throw tooManyOpen();
    await scheduler.wait(POLL_MS);
  }
}

/** Closes idle objects until few enough are open. Calls of objects close none: the caller may end in the middle. */
async function closeOthers(namespaces: Namespaces, most: number): Promise<void> {
  for (let left = MAX_CLOSED; left > 0 && openObjects().size > Math.min(MANY_OBJECTS, most); left -= 1) {
    if (!(await closeAnother(namespaces))) return;
  }
}

/** Closes the least recently used idle object. False if there is none. */
async function closeAnother(namespaces: Namespaces): Promise<boolean> {
  for (const [key, object] of openObjects()) {
    if (object.calls > 0 || object.isLeaving) continue;
    const life = object.life?.deref();
    if (life && !life.isIdle) continue;
    if (!life) objectLeft(key);
    else if (!(await leave(namespaces, key, object, false))) continue;
    return true;
  }
  return false;
}

/** Closes an object, unless it must stay. Tells whether it has closed. */
async function leave(all: Namespaces, key: string, object: OpenObject, onlyIfVacant: boolean): Promise<boolean> {
  object.isLeaving = true;
  const stub = all[object.name.binding]?.getByName(textOf(object.name)) as unknown as LeavingStub;
  // The object's instance has ended, and the call with it.
  const hasLeft = await stub.leave(onlyIfVacant).catch(() => true);
  object.isLeaving = false;
  if (hasLeft) objectLeft(key);
  return hasLeft;
}

type LeavingStub = { leave(onlyIfVacant: boolean): Promise<boolean> };

/**
 * Makes room for an object that the runtime has opened for its alarm, if too many are open: closes another one. False if none may be
 * closed.
 */
export async function hasPlace(namespaces: Namespaces): Promise<boolean> {
  if (namespaces.OPEN_FILES === undefined || openObjects().size <= (await mostOpenObjects(namespaces))) return true;
  return closeAnother(namespaces);
}

function tooManyOpen(): ApiError {
  return new ApiError({
    status: 503,
    message: "The server has the maximum number of objects open. Please retry in a few seconds.",
    code: "server_is_overloaded",
    headers: { "retry-after": "2" },
  });
}
