import { statfsSync } from "node:fs";
import { open, readFile, statfs } from "node:fs/promises";
import { join } from "node:path";
import type { DiskState, ProcessMeasures } from "../../src/store/objects/process-state.ts";
import { lastBackup, MARKER_FILE } from "./data-folder.ts";
import { systemCode } from "./refusal.ts";

/** Watches the free space on the file system of a data folder. */

/** The part of a file system that one tenant may fill. */
const SHARE = 1 / 4;

/** The bytes that one tenant may store in a folder, so that no tenant fills its file system. */
export function diskShare(folder: string): number {
  const { blocks, bsize } = statfsSync(folder);
  return Math.floor(blocks * bsize * SHARE);
}

/** Gives the required free space of a file system with this many bytes. */
export type LeastFree = (totalBytes: number) => number;

/** The format of `MIN_FREE_DISK`: bytes, or a part of the file system. */
export const LEAST_FREE = /^(\d{1,15}|(\d{1,2}(\.\d+)?|100)%)$/;

/** The required free space of `MIN_FREE_DISK`; by default a twentieth of the file system, and at most 1 GB. */
export function leastFree(text: string | undefined): LeastFree {
  if (text === undefined) return (total) => Math.min(total / 20, 1e9);
  const value = Number.parseFloat(text);
  return text.endsWith("%") ? (total) => (total * value) / 100 : () => value;
}

/** A short interval without measurable cost: between two checks only this threshold keeps the disk from filling up. */
const INTERVAL_MS = 1_000;

/** After the disk was low, this much more than the minimum must be free. */
const ENOUGH = 1.1;

export interface Disk {
  freeBytes: number;
  leastBytes: number;
  isLow: boolean;
}

/** The state of a folder's file system; `wasLow`: the state before. */
export async function diskStateOf(folder: string, least: LeastFree, wasLow: boolean): Promise<Disk> {
  const { bavail, blocks, bsize } = await statfs(folder);
  const freeBytes = bavail * bsize;
  const leastBytes = least(blocks * bsize);
  return { freeBytes, leastBytes, isLow: freeBytes <= leastBytes * (wasLow ? ENOUGH : 1) };
}

/**
 * Tells whether a data folder's file system refuses writes. `access` does not report that after an error of the file
 * system. No other file than the marker may be opened: closing a file releases SQLite's locks of it.
 */
async function isReadOnly(folder: string): Promise<boolean> {
  try {
    await using _marker = await open(join(folder, MARKER_FILE), "r+");
    return false;
  } catch (error) {
    return systemCode(error) === "EROFS";
  }
}

/**
 * Checks a data folder now, and then once a second until it is disposed of. Calls `changed` at first, and at each change
 * of the state; if it rejects, calls it again at the next check. Resolves after the first check. A file system without
 * figures keeps its state.
 */
export async function watchDisk(
  folder: string,
  least: LeastFree,
  changed: (state: DiskState, disk: Disk) => Promise<void>,
): Promise<Disposable> {
  let told: DiskState | undefined;
  let isLooking = false;
  const look = async () => {
    if (isLooking) return;
    isLooking = true;
    try {
      const disk = await diskStateOf(folder, least, told === "low");
      const state = (await isReadOnly(folder)) ? "read_only" : disk.isLow ? "low" : "ok";
      if (state === told) return;
      await changed(state, disk);
      told = state;
    } catch {
      // The next check calls it again.
    } finally {
      isLooking = false;
    }
  };
  await look();
  const timer = setInterval(look, INTERVAL_MS);
  timer.unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/**
 * The measures of a Worker's process for `/metrics`: its resident memory, and the free space of its folder's disk.
 * Bytes.
 */
export async function measuresOf(
  pid: number | undefined,
  folder: string,
): Promise<{ memory?: number; freeDisk?: number }> {
  const [status, disk] = await Promise.all([
    readFile(`/proc/${pid}/status`, "utf8").catch(() => ""),
    statfs(folder).catch(() => undefined),
  ]);
  const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1];
  return {
    ...(kilobytes !== undefined && { memory: Number(kilobytes) * 1024 }),
    ...(disk && { freeDisk: disk.bavail * disk.bsize }),
  };
}

/** The launcher's own state, which the metrics show. */
export interface LauncherState {
  /** The data folder, to whose backups belongs a time. */
  folder: string;
  /** The configuration file has errors, and the configuration before it is in force. Undefined without a file. */
  isFileRefused: boolean | undefined;
}

/** The measures of the launcher's state. */
export function stateMeasures({ folder, isFileRefused }: LauncherState): ProcessMeasures {
  return { isFileRefused, backupAt: lastBackup(folder) };
}
