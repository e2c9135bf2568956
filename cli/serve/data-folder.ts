import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { SCHEMA_VERSIONS } from "../../src/store/objects/registry.ts";
import { METADATA_FILE } from "../backup/object-files.ts";
import { damageIn, type RebuiltList, rebuildAlarmList } from "../tools/alarm-lists.ts";
import { version } from "./installation.ts";
import { EXIT, Refusal, systemCode } from "./refusal.ts";
import { dealShares, shareFolders } from "./shares.ts";
import { checkWrittenBy, FORMAT } from "./written-by.ts";

/**
 * The folder in which a process stores its objects: a folder for each class, with a SQLite file for each object and
 * `metadata.sqlite` with the alarms. Two processes must not have the same folder: each would run every object. SQLite's
 * locks are the kernel's: they end with their holder, however it dies, and hold between containers of one machine,
 * where process ids mean nothing. This program holds LOCK_FILE; workerd has every `metadata.sqlite` open for as long as
 * it lives. So a workerd that has outlived its launcher is detected, too.
 */

const LOCK_FILE = "responses-edge.lock";
/** The id of the process that holds the lock, for people. */
const HOLDER_FILE = `${LOCK_FILE}.pid`;
export const MARKER_FILE = "responses-edge.json";
/** The socket by which `reload` reaches the process that serves the folder. */
export const CONTROL_FILE = "responses-edge.socket";
/** The time of the newest backup. */
const BACKUP_FILE = "responses-edge.backup";

/** The time in which a workerd is killed whose launcher was killed. Milliseconds. */
const ORPHAN_WAIT_MS = 5_000;
const ORPHAN_POLL_MS = 50;

/** SQLITE_BUSY: another process has a lock. */
const SQLITE_BUSY = 5;

/** The versions that wrote into a folder. */
export interface Marker {
  readonly format: number;
  readonly version: string;
  /** The version of the tables of each class. */
  readonly schema: Readonly<Record<string, number>>;
  /** The number of workers that share the objects, if there are several; 0 while the objects are being moved. */
  readonly workers?: number | undefined;
}

export interface DataFolder {
  /** Absolute. */
  path: string;
  /** Lists of alarms that were damaged, and have been rebuilt. */
  rebuilt: readonly (RebuiltList & { list: string })[];
  /** Objects that have another worker now; undefined if the number of workers is unchanged. */
  moved: number | undefined;
  /** Releases the folder. To be called after workerd has ended. */
  close(): void;
}

/** The folder in which `restore` has files until all of them are there: a data folder with it is incomplete. */
export const UNFINISHED_RESTORE = ".restoring";

/**
 * Takes a folder, makes it if it does not exist, distributes its objects among the workers, and records the versions
 * that write into it from now on. Throws a Refusal if the folder is in use, was written by a version that this one
 * does not follow, or cannot be written; and, except for `restore` itself, after an interrupted restore. The end of this process releases it.
 */
export async function openDataFolder(
  folder: string,
  { isRestore = false, workers = 1 }: { isRestore?: boolean; workers?: number } = {},
): Promise<DataFolder> {
  const path = resolve(folder);
  try {
    // Only this user may read the clients' data.
    mkdirSync(path, { recursive: true, mode: 0o700 });
    const lock = takeLock(path);
    const rebuilt: (RebuiltList & { list: string })[] = [];
    let moved: number | undefined;
    try {
      checkMarker(path);
      if (!isRestore) checkRestore(path);
      const damagedLists = await untilUnused(path);
      if (!isRestore) for (const list of damagedLists) rebuilt.push({ list, ...rebuildAlarmList(dirname(list)) });
      markDataFolder(path);
      moved = deal(path, workers);
    } catch (error) {
      lock.close();
      throw error;
    }
    return { path, rebuilt, moved, close: () => lock.close() };
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal(EXIT.noAccess, `The data folder ${path} cannot be used: ${inWords(path, error)}.`);
  }
}

/** The reason why a folder cannot be used, in words. SQLite does not say of a disk that it is full or can only be read. */
function inWords(path: string, error: unknown): string {
  const code = systemCode(error);
  const fault = writeFaultOf(path);
  if (fault === "EROFS") return "it is read-only: its file system was mounted read-only, perhaps after an error";
  if (/ENOSPC|disk is full/i.test(code)) return `its disk is full (${code})`;
  return fault === "EACCES" || fault === "EPERM" ? `this user may not write to it (${fault})` : (fault ?? code);
}

/** The system's code of the reason why a folder cannot be written to; undefined if it can. */
function writeFaultOf(path: string): string | undefined {
  try {
    accessSync(path, constants.W_OK);
    return undefined;
  } catch (error) {
    return systemCode(error).split(":")[0];
  }
}

/** Takes a folder, damaged or not, to examine it. Throws a Refusal if another process uses it. */
export async function openFolderAsItIs(folder: string): Promise<Disposable> {
  const path = resolve(folder);
  try {
    const lock = takeLock(path);
    try {
      await untilUnused(path);
    } catch (error) {
      lock.close();
      throw error;
    }
    return { [Symbol.dispose]: () => lock.close() };
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal(EXIT.noAccess, `The data folder ${path} cannot be used: ${inWords(path, error)}.`);
  }
}

/**
 * Records in a folder that this version writes into it from now on. Throws a Refusal if a newer version has written
 * there.
 */
export function markDataFolder(path: string): void {
  const workers = checkMarker(path)?.workers;
  writeMarker(path, markerOf(workers));
}

function markerOf(workers = 1): Marker {
  return { format: FORMAT, version, schema: SCHEMA_VERSIONS, ...(workers !== 1 && { workers }) };
}

/** Distributes the objects of a folder among the given number of workers. Returns the number of moved objects. */
function deal(path: string, workers: number): number | undefined {
  const before = readMarker(path)?.workers ?? (shareFolders(path).length > 1 ? 0 : 1);
  if (before === workers) return undefined;
  writeMarker(path, markerOf(0));
  const moved = dealShares(path, workers);
  writeMarker(path, markerOf(workers));
  return moved;
}

/** The marker of a folder; undefined if there is none, because the folder is new or was repaired. */
export function readMarker(folder: string): Marker | undefined {
  const file = join(folder, MARKER_FILE);
  if (!existsSync(file)) return undefined;
  try {
    return markerIn(JSON.parse(readFileSync(file, "utf8")));
  } catch {
    throw new Refusal(EXIT.configuration, `${file} is damaged: it is not in this program's format.`);
  }
}

/** Checks a marker, without a schema: `serve` loads none (`helper-process.ts`). */
function markerIn(value: Partial<Record<keyof Marker, unknown>>): Marker {
  const { format = 1, version, schema, workers } = value;
  const numbers = [format, workers ?? 0, ...Object.values(schema as object)];
  if (typeof version !== "string" || typeof schema !== "object" || !numbers.every(Number.isSafeInteger)) {
    throw new TypeError("no marker");
  }
  return { format, version, schema, workers } as Marker;
}

function checkRestore(path: string): void {
  if (!existsSync(join(path, UNFINISHED_RESTORE))) return;
  throw new Refusal(
    EXIT.damaged,
    `The data folder ${path} is incomplete: a restore into it was interrupted. Empty it, and restore again.`,
  );
}

/**
 * Tells whether a file in a data folder is this program's own, and no data. A folder without data may have such files.
 */
export function isOwnFile(name: string): boolean {
  return name.startsWith(LOCK_FILE) || name.startsWith(MARKER_FILE) || [CONTROL_FILE, BACKUP_FILE].includes(name);
}

/** Notes in a data folder when its newest backup began. One that cannot be written, such as on a full disk, has no note. */
export function noteBackup(folder: string, at: Date): void {
  try {
    writeFileSync(join(folder, BACKUP_FILE), `${at.toISOString()}\n`);
  } catch {
    // The backup is whole without it.
  }
}

/** When the newest backup of a data folder began, Unix milliseconds; undefined if none was noted. */
export function lastBackup(folder: string): number | undefined {
  try {
    const at = Date.parse(readFileSync(join(folder, BACKUP_FILE), "utf8").trim());
    return Number.isNaN(at) ? undefined : at;
  } catch {
    return undefined;
  }
}

/** Reads the marker of a folder. Throws a Refusal if this program cannot read what was written there. */
export function checkMarker(path: string): Marker | undefined {
  const noted = readMarker(path);
  if (noted) checkWrittenBy(noted, `The data folder ${path}`);
  return noted;
}

/**
 * Records the versions that have written into a folder. Does not write the same marker again, so that a full disk is no
 * hindrance.
 */
export function writeMarker(path: string, noted: Marker): void {
  const text = `${JSON.stringify(noted)}\n`;
  const file = join(path, MARKER_FILE);
  if (existsSync(file) && readFileSync(file, "utf8") === text) return;
  const unfinished = `${file}.new`;
  writeFileSync(unfinished, text);
  renameSync(unfinished, file);
}

function takeLock(path: string): DatabaseSync {
  const lock = lockWhole(join(path, LOCK_FILE));
  if (!lock) {
    const holder = holderOf(path);
    const [which, how] = holder === undefined ? ["", ""] : [` (process ${holder})`, ` (kill ${holder})`];
    throw new Refusal(
      EXIT.busy,
      `Another responses-edge${which} uses the data folder ${path}. Stop it${how}, or set STATE_DIRECTORY to another folder, and PORT to serve beside it.`,
    );
  }
  try {
    writeFileSync(join(path, HOLDER_FILE), `${process.pid}\n`);
  } catch {
    // The lock holds without it, such as on a full disk.
  }
  return lock;
}

/** The process that holds the lock of a folder; undefined if this machine has none with its id, or it is in another container. */
function holderOf(path: string): number | undefined {
  try {
    const pid = Number(readFileSync(join(path, HOLDER_FILE), "utf8"));
    process.kill(pid, 0);
    return pid === process.pid ? undefined : pid;
  } catch {
    return undefined;
  }
}

/** Waits until no workerd has the folder's files open. Gives the damaged lists of alarms. */
async function untilUnused(path: string): Promise<string[]> {
  const damaged: string[] = [];
  const files = shareFolders(path)
    .flatMap((folder) => readdirSync(folder).map((name) => join(folder, name, METADATA_FILE)))
    .filter((file) => existsSync(file));
  const deadline = performance.now() + ORPHAN_WAIT_MS;
  for (const file of files) {
    // Only a database with a complete first page can be locked. No process has a file open that is no database.
    if (damageIn(file) !== undefined) {
      damaged.push(file);
      continue;
    }
    for (let free = lockWhole(file); ; free = lockWhole(file)) {
      free?.close();
      if (free) break;
      if (performance.now() > deadline) {
        throw new Refusal(EXIT.busy, `A workerd that this program has not started uses the data folder ${path}.`);
      }
      await sleep(ORPHAN_POLL_MS);
    }
  }
  return damaged;
}

/** Opens a database exclusively; undefined if another process has it. */
function lockWhole(file: string): DatabaseSync | undefined {
  const database = new DatabaseSync(file);
  try {
    // Readers share a write-ahead log unless one of them needs it exclusively.
    database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
    return database;
  } catch (error) {
    database.close();
    if (error instanceof Error && "errcode" in error && error.errcode === SQLITE_BUSY) return undefined;
    throw error;
  }
}
