import { statfs } from "node:fs/promises";
import { EXIT, Refusal, systemCode } from "./refusal.ts";

/** Warnings about the disk that data is written to. */

/** A disk with less room than this, in bytes, is told of where something cannot be written. */
const LITTLE_ROOM = 1_000_000;

/** Gives the reason why a write to a folder failed, in words. SQLite's do not always say that the disk is full. */
export async function faultText(error: unknown, folder: string): Promise<string> {
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  return free < LITTLE_ROOM ? `${systemCode(error)}; the disk has ${inMb(free)} left` : systemCode(error);
}

/** Throws the Refusal of a folder whose disk has not so many bytes left. */
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
