import { readFile, statfs } from "node:fs/promises";

/** Watches how much is free on the file system of a data folder. */

/** Gives the least that must be free of a file system of so many bytes. */
export type LeastFree = (totalBytes: number) => number;

/** How `MIN_FREE_DISK` is written: bytes, or a part of the file system. */
export const LEAST_FREE = /^(\d{1,15}|(\d{1,2}(\.\d+)?|100)%)$/;

/** The least that must be free, as `MIN_FREE_DISK` says it; by itself a twentieth of the file system, and at most 1 GB. */
export function leastFree(text: string | undefined): LeastFree {
  if (text === undefined) return (total) => Math.min(total / 20, 1e9);
  const value = Number.parseFloat(text);
  return text.endsWith("%") ? (total) => (total * value) / 100 : () => value;
}

/** As short as makes no difference to the machine: in it nothing but this threshold keeps a disk from being filled. */
const INTERVAL_MS = 1_000;

/** Once it is low, so much more than the least must be free. */
const ENOUGH = 1.1;

export interface Disk {
  freeBytes: number;
  leastBytes: number;
  isLow: boolean;
}

/** How a folder's file system is; `wasLow`: how it was before. */
export async function lookAtDisk(folder: string, least: LeastFree, wasLow: boolean): Promise<Disk> {
  const { bavail, blocks, bsize } = await statfs(folder);
  const freeBytes = bavail * bsize;
  const leastBytes = least(blocks * bsize);
  return { freeBytes, leastBytes, isLow: freeBytes <= leastBytes * (wasLow ? ENOUGH : 1) };
}

/**
 * Looks now, and then once a second until it is disposed of. `changed` is called at first, and when it becomes low or is not low any
 * more; where it rejects, it is called again at the next look. Resolves after the first look. A file system that does not tell
 * counts as it was.
 */
export async function watchDisk(
  folder: string,
  least: LeastFree,
  changed: (disk: Disk) => Promise<void>,
): Promise<Disposable> {
  let told: boolean | undefined;
  let isLooking = false;
  const look = async () => {
    if (isLooking) return;
    isLooking = true;
    try {
      const disk = await lookAtDisk(folder, least, told === true);
      if (disk.isLow === told) return;
      await changed(disk);
      told = disk.isLow;
    } catch {
      // At the next look.
    } finally {
      isLooking = false;
    }
  };
  await look();
  const timer = setInterval(look, INTERVAL_MS);
  timer.unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** The measures of a Worker's process that `/metrics` has: its resident memory, and what is free on its folder's disk. Bytes. */
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
