import { existsSync, statSync } from "node:fs";
import { copyFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { Environment } from "../configuration/environment.ts";
import { EXIT, Refusal } from "../serve/refusal.ts";
import { BackupBucket, isInBucket } from "./backup-bucket.ts";
import { type BackupFile, type BackupManifest, MANIFEST_FILE, readManifest } from "./backup-manifest.ts";
import { stampsIn } from "./backup-series.ts";

/** A backup to restore from. */
export interface BackupSource {
  /** Its path or address, for people. */
  name: string;
  manifest: BackupManifest;
  /** The files that are missing, or have another size than in the manifest. */
  missing(files: readonly BackupFile[]): Promise<BackupFile[]>;
  copy(file: BackupFile, to: string): Promise<void>;
}

/**
 * The backup at a path or address: the folder itself, or the backup `stamp` of a series in a folder or a bucket, by
 * default the newest. Throws a Refusal if there is none.
 */
export async function backupAt(
  place: string,
  stamp: string | undefined,
  environment: Environment,
): Promise<BackupSource> {
  if (isInBucket(place)) {
    const bucket = new BackupBucket(place, environment);
    const chosen = chosenOf(await bucket.stamps(), stamp, place);
    return {
      name: `${place}, ${chosen}`,
      manifest: await bucket.manifest(chosen),
      missing: (files) => bucket.missing(files),
      copy: (file, to) => bucket.download(file, to),
    };
  }
  const folder = resolve(place);
  const stamps = stampsIn(folder);
  if (stamp === undefined && (existsSync(join(folder, MANIFEST_FILE)) || stamps.length === 0)) return inFolder(folder);
  return inFolder(join(folder, chosenOf(stamps, stamp, folder)));
}

function chosenOf(stamps: readonly string[], stamp: string | undefined, place: string): string {
  const chosen = stamp ?? stamps.at(-1);
  if (chosen !== undefined && stamps.includes(chosen)) return chosen;
  const newest = stamps.length > 0 ? `It has ${stamps.slice(-3).join(", ")}.` : "It has none.";
  throw new Refusal(EXIT.damaged, `${place} has no backup${stamp === undefined ? "" : ` ${stamp}`}. ${newest}`);
}

function inFolder(folder: string): BackupSource {
  return {
    name: folder,
    manifest: readManifest(folder),
    missing: async (files) =>
      files.filter(({ path, bytes }) => statSync(join(folder, path), { throwIfNoEntry: false })?.size !== bytes),
    copy: ({ path }, to) => copyFile(join(folder, path), to),
  };
}
