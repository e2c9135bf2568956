import { existsSync, readdirSync, statSync } from "node:fs";
import { basename, join, resolve, sep } from "node:path";
import { SCHEMA_VERSIONS } from "../../src/store/objects/registry.ts";
import { checkMarker, noteBackup, readMarker } from "../serve/data-folder.ts";
import { faultText, refuseFullDisk } from "../serve/disk.ts";
import { version } from "../serve/installation.ts";
import { EXIT, Refusal } from "../serve/refusal.ts";
import { shareFolders } from "../serve/shares.ts";
import { uniqueKeyOf } from "../serve/workerd.ts";
import { Copier, filesOf } from "./backup-copier.ts";
import type { BucketFiles } from "./backup-manifest.ts";
import { folderStore } from "./backup-store.ts";
import { METADATA_FILE } from "./object-files.ts";

/**
 * `backup`: a copy of a data folder, also of one that a process writes to meanwhile. It does not call that process, and
 * does not delay it: SQLite's readers do not block its writers.
 * - The copy of an object's file shows it at one moment, including its write-ahead log.
 * - An alarm is stored twice: in its object, and in its class's list, which workerd reads. The backup's list is made
 *   from the alarms of the copies, whose moments may differ.
 * - Objects that point to others are copied after those: the quotas' notes of homes after the homes. Directories of
 *   files are copied before the files' bytes, too (`backup-files.ts`).
 */

export interface BackupOptions {
  /** The data folder. */
  data: string;
  /** The destination; a folder that does not exist, or is empty. */
  into: string;
  /** An earlier backup of the same data folder: unchanged files become links to its files, and take no space. */
  since?: string | undefined;
}

export interface BackupResult {
  /** Absolute. */
  folder: string;
  objects: number;
  /** The objects among them that come from an earlier backup. */
  unchanged: number;
  bytes: number;
  /** Damaged files of objects, which are not in the backup. */
  damaged: string[];
  /** Files whose bytes are in a bucket, and not in the backup. */
  inBuckets: BucketFiles;
}

const CLASS_FOLDER = /^[A-Za-z0-9_][A-Za-z0-9_.-]*$/;

/** Classes whose objects point to others', which are copied before them. */
const LAST = ["FileDirectory", "Quota", "KeyDirectory"].map(uniqueKeyOf);

/** Throws a Refusal if there is nothing to copy, or the backup cannot be written; then nothing of it remains. */
export async function backup({ data, into, since }: BackupOptions): Promise<BackupResult> {
  const [source, folder] = [resolve(data), resolve(into)];
  if (`${folder}${sep}`.startsWith(`${source}${sep}`)) {
    throw new Refusal(EXIT.usage, `A backup within the data folder ${source} would be lost with it.`);
  }
  checkThereIsData(source);
  const store = await folderStore(folder, since === undefined ? undefined : resolve(since));
  const startedAt = new Date();
  try {
    const classes = classFolders(source);
    const marker = checkMarker(source);
    const copier = new Copier(source, store);
    if (since === undefined) await checkFreeDisk(source, classes, store.folder);
    await copier.copyDirectoriesBefore();
    for (const name of classes) await copier.copyClass(name);
    await copier.end();
    if (readMarker(source)?.workers !== marker?.workers || marker?.workers === 0) {
      throw new Refusal(EXIT.busy, "The number of workers changed meanwhile. Make the backup again.");
    }
    const { files, unchanged, damaged, inBuckets } = copier;
    await store.finish({
      version,
      schema: marker?.schema ?? SCHEMA_VERSIONS,
      started_at: startedAt.toISOString(),
      ended_at: new Date().toISOString(),
      files,
      in_buckets: inBuckets,
    });
    noteBackup(source, startedAt);
    const objects = files.filter(({ path }) => basename(path) !== METADATA_FILE).length;
    return { folder, objects, unchanged, bytes: files.reduce((sum, { bytes }) => sum + bytes, 0), damaged, inBuckets };
  } catch (error) {
    const fault = await faultText(error, store.folder);
    await store.discard();
    if (error instanceof Refusal) throw error;
    throw new Refusal(EXIT.noAccess, `The backup was not made, and nothing of it is left: ${fault}.`);
  }
}

function checkThereIsData(source: string): void {
  if (classFolders(source).length > 0) return;
  throw new Refusal(EXIT.noAccess, `There is no data in ${source} (STATE_DIRECTORY).`);
}

/** The folders of classes in a data folder, in the order in which they are copied. */
function classFolders(data: string): string[] {
  if (!existsSync(data)) return [];
  const entries = shareFolders(data).flatMap((share) => readdirSync(share, { withFileTypes: true }));
  const folders = entries.filter((entry) => entry.isDirectory() && CLASS_FOLDER.test(entry.name));
  const names = [...new Set(folders.map(({ name }) => name))].filter((name) => filesOf(data, name).size > 0).sort();
  return [...names.filter((name) => !LAST.includes(name)), ...LAST.filter((name) => names.includes(name))];
}

async function checkFreeDisk(data: string, classes: readonly string[], folder: string): Promise<void> {
  let wanted = 0;
  for (const name of classes) {
    for (const [file, folder] of filesOf(data, name)) {
      wanted += statSync(join(folder, file), { throwIfNoEntry: false })?.size ?? 0;
    }
  }
  await refuseFullDisk(folder, wanted);
}
