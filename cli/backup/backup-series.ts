import { existsSync, readdirSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import { EXIT, Refusal } from "../serve/refusal.ts";
import { type BackupResult, backup } from "./backup.ts";
import { MANIFEST_FILE } from "./backup-manifest.ts";

/** Backups one after another in a folder, each named by its time; unchanged files are stored once. */

/** The names of backups: the times at which they began. Their order as texts is their order in time. */
const STAMP = /^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$/;

/** At most four digits, and `MAX_DAYS` days: a timer takes 2^31 milliseconds. */
const DURATION = /^(\d{1,4})([mhd])$/;
const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };
const MAX_DAYS = 24;

export interface SeriesBackup extends BackupResult {
  /** The stamps of the older backups that were removed. */
  removed: string[];
}

/** Makes the next backup of the series `into`, and removes all but the newest `keep`; undefined keeps all. */
export async function nextBackup(data: string, into: string, keep: number | undefined): Promise<SeriesBackup> {
  const series = resolve(into);
  const stamp = new Date().toISOString().replaceAll(/[:.]/g, "-");
  const last = stampsIn(series).at(-1);
  const made = await backup({ data, into: join(series, stamp), since: last && join(series, last) });
  return { ...made, removed: keep === undefined ? [] : await prune(series, keep) };
}

/**
 * The backup at a path: the folder itself, or the backup `stamp` of a series, by default the newest. Throws a Refusal if
 * the series has none.
 */
export function backupAt(place: string, stamp: string | undefined): string {
  const folder = resolve(place);
  const stamps = stampsIn(folder);
  if (stamp === undefined && (existsSync(join(folder, MANIFEST_FILE)) || stamps.length === 0)) return folder;
  const chosen = stamp ?? stamps.at(-1);
  if (chosen !== undefined && stamps.includes(chosen)) return join(folder, chosen);
  const newest = stamps.length > 0 ? `It has ${stamps.slice(-3).join(", ")}.` : "It has none.";
  throw new Refusal(EXIT.damaged, `${folder} has no backup${stamp === undefined ? "" : ` ${stamp}`}. ${newest}`);
}

/** The backups of a folder that are whole, oldest first. */
function stampsIn(folder: string): string[] {
  if (!existsSync(folder)) return [];
  const names = readdirSync(folder).filter((name) => STAMP.test(name));
  return names.filter((name) => existsSync(join(folder, name, MANIFEST_FILE))).sort();
}

/** A backup that was not finished, such as one that was killed has left, goes with those that are older than the newest. */
async function prune(folder: string, keep: number): Promise<string[]> {
  const whole = stampsIn(folder);
  const removed = whole.slice(0, Math.max(0, whole.length - keep));
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
