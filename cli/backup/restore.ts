import { readdirSync, statSync } from "node:fs";
import { copyFile, mkdir, rename, rm, rmdir } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { isOwnFile, openDataFolder, UNFINISHED_RESTORE, writeMarker } from "../serve/data-folder.ts";
import { faultText, refuseFullDisk } from "../serve/disk.ts";
import { EXIT, Refusal } from "../serve/refusal.ts";
import { checkWrittenBy } from "../serve/written-by.ts";
import { eachOf } from "../tools/each-of.ts";
import {
  type BackupFile,
  type BackupManifest,
  type BucketFiles,
  makeDurable,
  readManifest,
  sha256Of,
} from "./backup-manifest.ts";
import { backupAt } from "./backup-series.ts";
import { faultIn, METADATA_FILE } from "./object-files.ts";

/**
 * `restore`: a backup into an empty data folder. Files are copied and checked in a folder beside their final place, and
 * moved there at the end, so that an interrupted restore is never served.
 */

export interface RestoreOptions {
  /** The backup's folder, or that of a series of backups. */
  from: string;
  /** The stamp within a series; by default the newest. */
  at?: string | undefined;
  /** The data folder: one that does not exist, or is empty. */
  data: string;
}

export interface RestoreResult {
  /** Absolute. */
  folder: string;
  objects: number;
  bytes: number;
  /** The time at which the backup began: it has everything that was acknowledged before. */
  startedAt: string;
  /** The number of files whose bytes were in a bucket. */
  inBuckets: BucketFiles;
}

/** The names that an empty folder may contain, besides this program's own files. */
const IGNORED = [UNFINISHED_RESTORE, "lost+found"];

/** Files that are copied at the same time. */
const AT_ONCE = 4;

/** Names of files in one message. */
const MAX_NAMED = 5;

/**
 * Throws a Refusal if the backup is incomplete or of a version that this one does not follow, or the data folder is in use, not empty, or
 * cannot be written; then the data folder is unchanged.
 */
export async function restore({ from, at, data }: RestoreOptions): Promise<RestoreResult> {
  const source = backupAt(from, at);
  const manifest = readManifest(source);
  const { files, started_at: startedAt, in_buckets: inBuckets } = manifest;
  checkWrittenBy(manifest, `The backup ${source}`);
  const missing = files.filter(
    ({ path, bytes }) => statSync(join(source, path), { throwIfNoEntry: false })?.size !== bytes,
  );
  if (missing.length > 0) throw notWhole(source, missing);
  checkEmpty(resolve(data));
  // From here on no other process has the folder.
  const folder = await openDataFolder(data, { isRestore: true });
  const unfinished = join(folder.path, UNFINISHED_RESTORE);
  try {
    checkEmpty(folder.path);
    await rm(unfinished, { recursive: true, force: true });
    const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    await refuseFullDisk(folder.path, bytes);
    await copyAll(source, unfinished, files);
    await putInPlace(folder.path, unfinished, manifest);
    const objects = files.filter(({ path }) => basename(path) !== METADATA_FILE).length;
    return { folder: folder.path, objects, bytes, startedAt, inBuckets };
  } catch (error) {
    const fault = await faultText(error, folder.path);
    await rm(unfinished, { recursive: true, force: true }).catch(() => {});
    if (error instanceof Refusal) throw error;
    throw new Refusal(EXIT.noAccess, `Nothing was restored: ${fault}.`);
  } finally {
    folder.close();
  }
}

function notWhole(name: string, files: readonly BackupFile[]): Refusal {
  const named = files.slice(0, MAX_NAMED).map(({ path }) => path);
  const more = files.length > named.length ? ` and ${files.length - named.length} more` : "";
  return new Refusal(
    EXIT.damaged,
    `The backup ${name} is incomplete. Missing or damaged: ${named.join(", ")}${more}. Nothing was restored.`,
  );
}

function checkEmpty(folder: string): void {
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch {
    // The folder does not exist; or it is no folder, which opening it finds.
    return;
  }
  if (names.every((name) => IGNORED.includes(name) || isOwnFile(name))) return;
  throw new Refusal(EXIT.usage, `The data folder ${folder} is not empty. A restore needs an empty one.`);
}

async function copyAll(from: string, to: string, files: readonly BackupFile[]): Promise<void> {
  const folders = [...new Set(files.map(({ path }) => dirname(path)))];
  for (const name of folders) await mkdir(join(to, name), { recursive: true, mode: 0o700 });
  await eachOf(files, AT_ONCE, async (file) => {
    const copy = join(to, file.path);
    await copyFile(join(from, file.path), copy);
    if ((await sha256Of(copy)) !== file.sha256 || faultIn(copy)) throw notWhole(from, [file]);
    await makeDurable(copy);
  });
  for (const name of folders) await makeDurable(join(to, name));
}

async function putInPlace(
  folder: string,
  unfinished: string,
  { format, version, schema, files }: BackupManifest,
): Promise<void> {
  // The marker names the version of the backup, not this one, so that an older program may serve its own data.
  writeMarker(folder, { format, version, schema });
  for (const name of new Set(files.map(({ path }) => dirname(path)))) {
    await rename(join(unfinished, name), join(folder, name));
  }
  await makeDurable(folder);
  await rmdir(unfinished);
}
