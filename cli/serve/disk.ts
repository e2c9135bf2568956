import { statfs } from "node:fs/promises";
import { EXIT, Refusal, systemCode } from "./refusal.ts";

/** Warnings about the disk that data is written to. */

/** A disk with less free space than this, in bytes, is mentioned in the reason of a failed write. */
const LITTLE_SPACE = 1_000_000;

/** Gives the reason of a failed write to a folder, in words. SQLite's reasons do not always mention a full disk. */
export async function faultText(error: unknown, folder: string): Promise<string> {
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  return free < LITTLE_SPACE ? `${systemCode(error)}; the disk has ${inMb(free)} left` : systemCode(error);
}

/** Throws a Refusal if the folder's disk has fewer free bytes. */
export async function refuseFullDisk(folder: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  if (free >= bytes) return;
  throw new Refusal(EXIT.noAccess, `The disk of ${folder} has ${inMb(free)} left, and ${inMb(bytes)} are needed.`);
}

/** Bytes for people. */
export function inMb(bytes: number): string {
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}
