import { existsSync, readdirSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { Environment } from "../configuration/environment.ts";
import { EXIT, Refusal } from "../serve/refusal.ts";
import { type Backup, backUp, backup } from "./backup.ts";
import { BackupBucket, isInBucket } from "./backup-bucket.ts";
import { MANIFEST_FILE } from "./backup-manifest.ts";
import { keptOf, STAMP, stampOf } from "./backup-stamp.ts";

/** Backups one after another, in a folder or a bucket, each named by its time; unchanged files are stored once. */

/** At most four digits, and `MAX_DAYS` days: a timer takes 2^31 milliseconds. */
const DURATION = /^(\d{1,4})([mhd])$/;
const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };
const MAX_DAYS = 24;

export interface SeriesBackup extends Backup {
  /** The folder of the backup, or its address. */
  at: string;
  /** The stamps of the older backups that were removed. */
  removed: string[];
}

/** Makes the next backup of the series `into`, and removes all but the newest `keep`; undefined keeps all. */
export async function nextBackup(
  data: string,
  into: string,
  keep: number | undefined,
  environment: Environment,
): Promise<SeriesBackup> {
  const stamp = stampOf(new Date());
  if (isInBucket(into)) {
    const bucket = new BackupBucket(into, environment);
    const made = await backUp(data, await bucket.store(stamp), false);
    return { at: `${into}, ${stamp}`, ...made, removed: keep === undefined ? [] : await bucket.prune(keep) };
  }
  const folder = resolve(into);
  const since = stampsIn(folder).at(-1);
  const { folder: at, ...made } = await backup({
    data,
    into: join(folder, stamp),
    since: since && join(folder, since),
  });
  return { at, ...made, removed: keep === undefined ? [] : await prune(folder, keep) };
}

/** The backups of a folder that are whole, oldest first. */
export function stampsIn(folder: string): string[] {
  if (!existsSync(folder)) return [];
  const names = readdirSync(folder).filter((name) => STAMP.test(name));
  return names.filter((name) => existsSync(join(folder, name, MANIFEST_FILE))).sort();
}

/** A backup that was not finished, such as one that was killed has left, goes with those that are older than the newest. */
async function prune(folder: string, keep: number): Promise<string[]> {
  const whole = stampsIn(folder);
  const { removed } = keptOf(whole, keep);
  const newest = whole.at(-1) ?? "";
  const unfinished = readdirSync(folder).filter((name) => STAMP.test(name) && !whole.includes(name) && name < newest);
  for (const name of [...removed, ...unfinished]) {
    // Without its manifest it is no backup, however far the rest gets.
    await rm(join(folder, name, MANIFEST_FILE), { force: true });
    await rm(join(folder, name), { recursive: true, force: true });
  }
  return removed;
}

/** The milliseconds of `30m`, `6h` or `1d`. Throws the Refusal of another text. */
export function durationOf(text: string): number {
  const [, count, unit = ""] = DURATION.exec(text) ?? [];
  const milliseconds = Number(count) * (UNITS[unit] ?? 0);
  if (milliseconds > 0 && milliseconds <= MAX_DAYS * (UNITS.d ?? 0)) return milliseconds;
  throw new Refusal(
    EXIT.usage,
    `--every ${text}: expected minutes, hours or days up to ${MAX_DAYS}d, such as 30m, 6h or 1d.`,
  );
}

/** The number of `--keep`. Throws the Refusal of another text. */
export function keepOf(text: string): number {
  if (/^[1-9]\d{0,5}$/.test(text)) return Number(text);
  throw new Refusal(EXIT.usage, `--keep ${text}: expected a number of backups, 1 or more.`);
}
