import { constants, existsSync, statSync } from "node:fs";
import { copyFile, rm, stat } from "node:fs/promises";
import { backup as copyDatabase, DatabaseSync } from "node:sqlite";
import type { BackupFile } from "./backup-manifest.ts";

/** Copies of SQLite files that other processes may write to meanwhile. */

/** The time without a write after which a file is copied without SQLite, because clocks of file systems are coarse. */
const SETTLED_MS = 2_000;

/** SQLite's timeout while another process opens the file. */
export const BUSY_TIMEOUT_MS = 10_000;

/** SQLite's pages of one step: all, so that no writer makes it start again. */
const ALL_PAGES = 2 ** 31 - 1;

type SourceState = NonNullable<BackupFile["source"]>;

/** The state of a settled file: no write for a while, and an empty write-ahead log. Undefined for others. */
export async function settledState(file: string): Promise<SourceState | undefined> {
  try {
    const { size, mtimeMs, mtimeNs, ino } = await stat(file, { bigint: true });
    if (Number(mtimeMs) > Date.now() - SETTLED_MS || existsSync(`${file}-journal`)) return undefined;
    const log = statSync(`${file}-wal`, { throwIfNoEntry: false });
    if (log && log.size > 0) return undefined;
    return { bytes: String(size), mtime_ns: String(mtimeNs), inode: String(ino) };
  } catch {
    return undefined;
  }
}

export function isSame(one: SourceState | undefined, other: SourceState): boolean {
  return one?.bytes === other.bytes && one.mtime_ns === other.mtime_ns && one.inode === other.inode;
}

/** Copies a settled file; false if it was written to meanwhile, or no longer exists. */
export async function isCopiedAsItIs(from: string, to: string, state: SourceState): Promise<boolean> {
  try {
    await copyFile(from, to, constants.COPYFILE_FICLONE);
  } catch (error) {
    if (existsSync(from)) throw error;
  }
  if (isSame(await settledState(from), state)) return true;
  await rm(to, { force: true });
  return false;
}

/** Copies a file with possible writers, as it is at one moment; false if it no longer exists. */
export async function isCopiedLive(from: string, to: string): Promise<boolean> {
  if (!existsSync(from)) return false;
  try {
    using source = new DatabaseSync(from, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
    await copyDatabase(source, to, { rate: ALL_PAGES });
    return true;
  } catch (error) {
    if (existsSync(from)) throw error;
    await rm(to, { force: true });
    return false;
  }
}
