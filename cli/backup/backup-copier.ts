import { existsSync, readdirSync } from "node:fs";
import { mkdir, rm, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { shareFolders } from "../serve/shares.ts";
import { uniqueKeyOf } from "../serve/workerd.ts";
import { isDamage } from "../tools/alarm-lists.ts";
import { eachOf } from "../tools/each-of.ts";
import { AlarmList } from "./backup-alarms.ts";
import { withdrawUnsure } from "./backup-files.ts";
import { type BackupFile, type BucketFiles, filesInBuckets, makeDurable, sha256Of } from "./backup-manifest.ts";
import type { BackupStore } from "./backup-store.ts";
import { isCopiedAsItIs, isCopiedLive, isSame, settledState } from "./live-copy.ts";
import { alarmIn, faultIn, METADATA_FILE, OBJECT_FILE, objectIdOf } from "./object-files.ts";

/** Copies the objects of a data folder, class by class. */

/** Files that are copied at the same time; each may take a thread. */
const AT_ONCE = 4;

/** More copies than an object needs that deletes its alarm meanwhile. The pauses between them double, in milliseconds. */
const MAX_COPIES = 10;
const FIRST_PAUSE_MS = 10;

/** The class that is copied twice, and the folder for its first copy, which exists only while the backup is made. */
const DIRECTORIES = uniqueKeyOf("FileDirectory");
const BEFORE_FOLDER = ".before";

/** The files of a class in all shares, by their names, with the folder of each: its objects, and a list of alarms. */
export function filesOf(data: string, name: string): Map<string, string> {
  const folders = shareFolders(data).map((share) => join(share, name));
  const files = folders.flatMap((folder) =>
    (existsSync(folder) ? readdirSync(folder) : []).map((file) => [file, folder] as const),
  );
  return new Map(files.filter(([file]) => OBJECT_FILE.test(file) || file === METADATA_FILE));
}

/** The objects of a class, as `filesOf`. */
function objectsOf(data: string, name: string): Map<string, string> {
  const files = filesOf(data, name);
  files.delete(METADATA_FILE);
  return files;
}

export class Copier {
  readonly files: BackupFile[] = [];
  unchanged = 0;
  /** Files of objects without a copy. */
  readonly damaged: string[] = [];
  readonly inBuckets: BucketFiles = { files: 0, bytes: 0 };
  readonly #data: string;
  readonly #store: BackupStore;

  constructor(data: string, store: BackupStore) {
    this.#data = data;
    this.#store = store;
  }

  /** The destination of the files. */
  get #folder(): string {
    return this.#store.folder;
  }

  /** Removes the files that are not part of the backup. */
  async end(): Promise<void> {
    await rm(join(this.#folder, BEFORE_FOLDER), { recursive: true, force: true });
  }

  /** Copies the present directories of files before any bytes are copied. */
  async copyDirectoriesBefore(): Promise<void> {
    const objects = objectsOf(this.#data, DIRECTORIES);
    if (objects.size === 0) return;
    const into = join(this.#folder, BEFORE_FOLDER);
    await mkdir(into, { mode: 0o700 });
    await eachOf([...objects], AT_ONCE, async ([file, folder]) => {
      await isCopiedLive(join(folder, file), join(into, file)).catch((error: unknown) => {
        // Called when an object's copy is final.
        if (!saysDamage(error)) throw error;
      });
    });
  }

  async copyClass(name: string): Promise<void> {
    await mkdir(join(this.#folder, name), { mode: 0o700 });
    const lists = shareFolders(this.#data).map((share) => join(share, name, METADATA_FILE));
    const alarms = new AlarmList(lists);
    const copied: BackupFile[] = [];
    const objects = [...objectsOf(this.#data, name)].sort(([one], [other]) => (one < other ? -1 : 1));
    await eachOf(objects, AT_ONCE, async ([file, folder]) => {
      const path = `${name}/${file}`;
      const done = await this.#copyObject(path, join(folder, file), alarms).catch(async (error) => {
        if (!saysDamage(error)) throw error;
        // The other objects are copied in spite of a damaged one.
        this.damaged.push(path);
        await rm(join(this.#folder, path), { force: true });
      });
      if (done) copied.push(done);
    });
    copied.sort((one, other) => (one.path < other.path ? -1 : 1));
    this.files.push(...copied);
    if (alarms.isDamaged) this.damaged.push(`${name}/${METADATA_FILE}`);
    if (!alarms.exists) return;
    const path = `${name}/${METADATA_FILE}`;
    await alarms.write(join(this.#folder, path), copied);
    this.files.push(await this.#entry(path, null, null));
  }

  /** Undefined if the object no longer exists. */
  async #copyObject(path: string, source: string, alarms: AlarmList): Promise<BackupFile | undefined> {
    const target = join(this.#folder, path);
    for (let copies = 0; copies < MAX_COPIES; copies += 1) {
      const settled = await settledState(source);
      const known = this.#store.known.get(path);
      if (settled && known?.source && isSame(settled, known.source)) {
        const isListed = known.alarm === null || alarms.has(objectIdOf(path));
        if (isListed && (await this.#store.reuse(known))) {
          this.unchanged += 1;
          this.#noteBuckets(path, join(this.#folder, BEFORE_FOLDER, basename(path)));
          return known;
        }
      }
      const isAsItIs = settled !== undefined && (await isCopiedAsItIs(source, target, settled));
      if (!isAsItIs && !(await isCopiedLive(source, target))) return undefined;
      const alarm = alarmIn(target);
      // An alarm is in the list before it is in its object. If the list lacks it, the object has deleted it in the
      // meantime.
      if (alarm === null || alarms.has(objectIdOf(path))) {
        const isChanged = this.#isMadeSure(path, target);
        return this.#entry(path, alarmIn(target), isAsItIs && !isChanged ? settled : null);
      }
      await rm(target);
      await sleep(FIRST_PAUSE_MS * 2 ** copies);
    }
    throw new Error(
      `the list of alarms lacks the alarm of ${source}: it changes faster than it can be copied, or "responses-edge doctor --repair" is needed`,
    );
  }

  /** Counts the files whose bytes are in a bucket, if the copied object is a directory of files. */
  #noteBuckets(path: string, copy: string): void {
    if (!path.startsWith(`${DIRECTORIES}/`) || !existsSync(copy) || basename(path) === METADATA_FILE) return;
    const { files, bytes } = filesInBuckets(copy);
    this.inBuckets.files += files;
    this.inBuckets.bytes += bytes;
  }

  /** Removes files from a directory's copy whose bytes may be missing in the backup. True if the copy has changed. */
  #isMadeSure(path: string, copy: string): boolean {
    if (!path.startsWith(`${DIRECTORIES}/`)) return false;
    const before = join(this.#folder, BEFORE_FOLDER, basename(path));
    return withdrawUnsure(copy, existsSync(before) ? before : undefined);
  }

  async #entry(path: string, alarm: bigint | null, source: BackupFile["source"]): Promise<BackupFile> {
    const file = join(this.#folder, path);
    const fault = faultIn(file);
    if (fault) throw new DamagedFile(`${join(this.#data, path)} is damaged: ${fault}`);
    this.#noteBuckets(path, file);
    const { size: bytes } = await stat(file);
    await makeDurable(file);
    return { path, bytes, sha256: await sha256Of(file), alarm: alarm === null ? null : String(alarm), source };
  }
}

class DamagedFile extends Error {
  override readonly name = "DamagedFile";
}

function saysDamage(error: unknown): boolean {
  return error instanceof DamagedFile || isDamage(error);
}
