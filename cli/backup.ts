import { constants, existsSync, readdirSync, statSync } from "node:fs";
import { copyFile, link, mkdir, rm, stat, statfs } from "node:fs/promises";
import { basename, join, resolve, sep } from "node:path";
import { backup as copyDatabase, DatabaseSync } from "node:sqlite";
import { withdrawUnsure } from "./backup-files.ts";
import {
  alarmIn,
  type BackupFile,
  type BucketFiles,
  faultIn,
  filesInBuckets,
  METADATA_FILE,
  makeDurable,
  readManifest,
  sha256Of,
  writeManifest,
} from "./backup-manifest.ts";
import { readMarker } from "./data-folder.ts";
import { eachOf } from "./each-of.ts";
import { version } from "./installation.ts";
import { EXIT, Refusal, systemCode } from "./refusal.ts";
import { uniqueKeyOf } from "./workerd.ts";

/**
 * `backup`: a copy of a data folder, also of one that a process writes to meanwhile. It asks that process nothing, and keeps
 * it from nothing: SQLite's readers do not hold up its writers.
 *
 * - An object's file is copied as it was at one moment, with what its write-ahead log has.
 * - An alarm is kept twice: in its object, and in its class's list, which workerd reads. The backup's list is made of the
 *   alarms of the copies, whose moments may differ.
 * - Objects that point to others are copied after those: the quotas' notes of homes after the homes. Directories of files are copied
 *   before the files' bytes, too (`backup-files.ts`).
 */

export interface BackupOptions {
  /** The data folder. */
  data: string;
  /** Where to; a folder that is not there, or empty. */
  into: string;
  /** An earlier backup of the same data folder: what has not changed since is linked to its files, and takes no room. */
  since?: string | undefined;
}

export interface BackupResult {
  /** Absolute. */
  folder: string;
  objects: number;
  /** Of them, those that were linked to an earlier backup. */
  unchanged: number;
  bytes: number;
  /** Files of objects that are damaged, and not in the backup. */
  damaged: string[];
  /** Files whose bytes are in a bucket, and not in the backup. */
  inBuckets: BucketFiles;
}

/** Files that are copied at a time; each may take a thread. */
const AT_ONCE = 4;

/** How long a file must have been left alone to be copied without SQLite: clocks of file systems are coarse. */
const SETTLED_MS = 2_000;

/** A disk with less room than this, in bytes, is told of where something cannot be written. */
const LITTLE_ROOM = 1_000_000;

/** How long SQLite waits for who opens a file at that moment. */
const BUSY_TIMEOUT_MS = 10_000;

/** SQLite's pages of one step: all of them, so that no writer makes it begin anew. */
const ALL_PAGES = 2 ** 31 - 1;

/** An object that sets and loses an alarm between two looks, again and again, is none of this program's. */
const MAX_COPIES = 20;

const CLASS_FOLDER = /^[A-Za-z0-9_][A-Za-z0-9_.-]*$/;
const OBJECT_FILE = /^[0-9a-f]{64}\.sqlite$/;

/** Classes whose objects point to others', which are copied before them. */
const LAST = ["FileDirectory", "Quota", "KeyDirectory"].map(uniqueKeyOf);

/** The class that is copied twice, and the folder within the backup of what is looked at only while it is made. */
const DIRECTORIES = uniqueKeyOf("FileDirectory");
const BEFORE_FOLDER = ".before";

/** Throws a Refusal where there is nothing to copy, or the backup cannot be written; nothing of it is left then. */
export async function backup({ data, into, since }: BackupOptions): Promise<BackupResult> {
  const [source, folder] = [resolve(data), resolve(into)];
  const startedAt = new Date();
  const classes = classFolders(source);
  if (classes.length === 0) throw new Refusal(EXIT.noAccess, `There is no data in ${source} (STATE_DIRECTORY).`);
  if (`${folder}${sep}`.startsWith(`${source}${sep}`)) {
    throw new Refusal(EXIT.usage, `A backup within the data folder ${source} would be lost with it.`);
  }
  const marker = readMarker(source);
  const earlier = since === undefined ? undefined : resolve(since);
  const known = new Map(earlier ? readManifest(earlier).files.map((file) => [file.path, file]) : []);
  const wasThere = makeEmptyFolder(
    folder,
    await mkdir(folder, { recursive: true, mode: 0o700 }).catch(refuseTo(folder)),
  );
  try {
    const copier = new Copier(source, folder, earlier, known);
    if (!earlier) await checkFreeDisk(source, classes, folder);
    await copier.copyDirectoriesBefore();
    for (const name of classes) await copier.copyClass(name);
    await rm(join(folder, BEFORE_FOLDER), { recursive: true, force: true });
    const { files, unchanged, damaged, inBuckets } = copier;
    await writeManifest(folder, {
      version,
      schema: marker?.schema ?? null,
      started_at: startedAt.toISOString(),
      ended_at: new Date().toISOString(),
      files,
      in_buckets: inBuckets,
    });
    const objects = files.filter(({ path }) => basename(path) !== METADATA_FILE).length;
    return { folder, objects, unchanged, bytes: files.reduce((sum, { bytes }) => sum + bytes, 0), damaged, inBuckets };
  } catch (error) {
    const fault = await faultText(error, folder);
    await removeUnfinished(folder, classes, wasThere);
    if (error instanceof Refusal) throw error;
    throw new Refusal(EXIT.noAccess, `The backup was not made, and nothing of it is left: ${fault}.`);
  }
}

/** Whether the folder was there before; `made` is the first one that had to be made. */
function makeEmptyFolder(folder: string, made: string | undefined): boolean {
  if (readdirSync(folder).some((name) => name !== "lost+found")) {
    throw new Refusal(EXIT.usage, `${folder} is not empty. A backup wants a folder of its own.`);
  }
  return made === undefined;
}

function refuseTo(folder: string) {
  return (error: unknown): never => {
    throw new Refusal(EXIT.noAccess, `The folder ${folder} cannot be made: ${systemCode(error)}.`);
  };
}

async function removeUnfinished(folder: string, classes: readonly string[], keepsFolder: boolean): Promise<void> {
  const made = keepsFolder ? [...classes, BEFORE_FOLDER].map((name) => join(folder, name)) : [folder];
  for (const path of made) await rm(path, { recursive: true, force: true }).catch(() => {});
}

/** What a failure to write to a folder is, in words. SQLite's do not always say that the disk is full. */
export async function faultText(error: unknown, folder: string): Promise<string> {
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  return free < LITTLE_ROOM ? `${systemCode(error)}; the disk has ${inMb(free)} left` : systemCode(error);
}

/** The folders of classes in a data folder, in the order in which they are copied. */
function classFolders(data: string): string[] {
  if (!existsSync(data)) return [];
  const names = readdirSync(data, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && CLASS_FOLDER.test(entry.name))
    .filter((entry) => filesOf(join(data, entry.name)).length > 0)
    .map(({ name }) => name)
    .sort();
  return [...names.filter((name) => !LAST.includes(name)), ...LAST.filter((name) => names.includes(name))];
}

/** The files of a class: those of its objects, and the list of alarms. */
function filesOf(folder: string): string[] {
  return readdirSync(folder).filter((name) => OBJECT_FILE.test(name) || name === METADATA_FILE);
}

async function checkFreeDisk(data: string, classes: readonly string[], folder: string): Promise<void> {
  let wanted = 0;
  for (const name of classes) {
    for (const file of filesOf(join(data, name))) {
      wanted += statSync(join(data, name, file), { throwIfNoEntry: false })?.size ?? 0;
    }
  }
  await refuseFullDisk(folder, wanted);
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

class Copier {
  readonly files: BackupFile[] = [];
  unchanged = 0;
  /** Files of objects of which nothing was copied. */
  readonly damaged: string[] = [];
  readonly inBuckets: BucketFiles = { files: 0, bytes: 0 };
  readonly #data: string;
  readonly #folder: string;
  readonly #earlier: string | undefined;
  readonly #known: ReadonlyMap<string, BackupFile>;

  constructor(data: string, folder: string, earlier: string | undefined, known: ReadonlyMap<string, BackupFile>) {
    this.#data = data;
    this.#folder = folder;
    this.#earlier = earlier;
    this.#known = known;
  }

  /** Copies the directories of files as they are before any bytes are copied. */
  async copyDirectoriesBefore(): Promise<void> {
    const folder = join(this.#data, DIRECTORIES);
    if (!existsSync(folder)) return;
    const into = join(this.#folder, BEFORE_FOLDER);
    await mkdir(into, { mode: 0o700 });
    const objects = filesOf(folder).filter((file) => file !== METADATA_FILE);
    await eachOf(objects, AT_ONCE, async (file) => {
      await isCopiedLive(join(folder, file), join(into, file)).catch((error: unknown) => {
        // It is told of when it is copied for good.
        if (!isDamage(error)) throw error;
      });
    });
  }

  async copyClass(name: string): Promise<void> {
    await mkdir(join(this.#folder, name), { mode: 0o700 });
    const alarms = new AlarmList(join(this.#data, name, METADATA_FILE));
    const copied: BackupFile[] = [];
    const objects = filesOf(join(this.#data, name)).filter((file) => file !== METADATA_FILE);
    await eachOf(objects.sort(), AT_ONCE, async (file) => {
      const path = `${name}/${file}`;
      const done = await this.#copyObject(path, alarms).catch(async (error) => {
        if (!isDamage(error)) throw error;
        // One object that cannot be read is no reason to keep the others from being copied.
        this.damaged.push(path);
        await rm(join(this.#folder, path), { force: true });
      });
      if (!done) return;
      copied.push(done);
      if (name === DIRECTORIES) this.#noteBuckets(join(this.#folder, path));
    });
    copied.sort((one, other) => (one.path < other.path ? -1 : 1));
    this.files.push(...copied);
    if (!alarms.exists) return;
    const path = `${name}/${METADATA_FILE}`;
    await alarms.write(join(this.#folder, path), copied);
    this.files.push(await this.#entry(path, null, null));
    await makeDurable(join(this.#folder, name));
  }

  /** Undefined where the object is not there any more. */
  async #copyObject(path: string, alarms: AlarmList): Promise<BackupFile | undefined> {
    const [source, target] = [join(this.#data, path), join(this.#folder, path)];
    for (let copies = 0; copies < MAX_COPIES; copies += 1) {
      const settled = await settledState(source);
      const known = this.#known.get(path);
      if (settled && known?.source && this.#earlier && isSame(settled, known.source)) {
        const isListed = known.alarm === null || alarms.has(idOf(path));
        if (isListed && (await isLinked(join(this.#earlier, path), target, known.bytes))) {
          this.unchanged += 1;
          return known;
        }
      }
      const isAsItIs = settled !== undefined && (await isCopiedAsItIs(source, target, settled));
      if (!isAsItIs && !(await isCopiedLive(source, target))) return undefined;
      const alarm = alarmIn(target);
      // An alarm is in the list before its object has it: where it is not, the object has lost it since.
      if (alarm === null || alarms.has(idOf(path))) {
        const isChanged = this.#isMadeSure(path, target);
        return this.#entry(path, alarmIn(target), isAsItIs && !isChanged ? settled : null);
      }
      await rm(target);
    }
    throw new Error(`${source} changes faster than it can be copied`);
  }

  #noteBuckets(directory: string): void {
    const { files, bytes } = filesInBuckets(directory);
    this.inBuckets.files += files;
    this.inBuckets.bytes += bytes;
  }

  /** Takes out of a directory's copy what may not be in the backup. True where there was such. */
  #isMadeSure(path: string, copy: string): boolean {
    if (!path.startsWith(`${DIRECTORIES}/`)) return false;
    const before = join(this.#folder, BEFORE_FOLDER, basename(path));
    return withdrawUnsure(copy, existsSync(before) ? before : undefined);
  }

  async #entry(path: string, alarm: bigint | null, source: BackupFile["source"]): Promise<BackupFile> {
    const file = join(this.#folder, path);
    const fault = faultIn(file);
    if (fault) throw new DamagedFile(`${join(this.#data, path)} is damaged: ${fault}`);
    await makeDurable(file);
    const { size: bytes } = await stat(file);
    return { path, bytes, sha256: await sha256Of(file), alarm: alarm === null ? null : String(alarm), source };
  }
}

class DamagedFile extends Error {
  override readonly name = "DamagedFile";
}

/** SQLITE_CORRUPT and SQLITE_NOTADB. */
const DAMAGE = [11, 26];

function isDamage(error: unknown): boolean {
  if (error instanceof DamagedFile) return true;
  return error instanceof Error && "errcode" in error && DAMAGE.includes(Number(error.errcode) & 0xff);
}

type SourceState = NonNullable<BackupFile["source"]>;

/** An object's id, by its file. */
function idOf(path: string): string {
  return basename(path, ".sqlite");
}

/**
 * What a file looks like that is whole by itself: it has been left alone for a while, and its write-ahead log is empty.
 * Undefined for others.
 */
async function settledState(file: string): Promise<SourceState | undefined> {
  try {
    const { size, mtimeMs, mtimeNs, ino } = await stat(file, { bigint: true });
    if (Number(mtimeMs) > Date.now() - SETTLED_MS || existsSync(`${file}-journal`)) return undefined;
    const log = statSync(`${file}-wal`, { throwIfNoEntry: false });
    if (log && log.size > 0) return undefined;
    return { bytes: String(size), mtime_ns: String(mtimeNs), inode: String(ino) };
  } catch {
    return undefined;
  }
}

function isSame(one: SourceState | undefined, other: SourceState): boolean {
  return one?.bytes === other.bytes && one.mtime_ns === other.mtime_ns && one.inode === other.inode;
}

/** Links a file of an earlier backup; false where it cannot be had. */
async function isLinked(from: string, to: string, bytes: number): Promise<boolean> {
  if (statSync(from, { throwIfNoEntry: false })?.size !== bytes) return false;
  try {
    await link(from, to);
    return true;
  } catch {
    // Another file system, or one without links.
    return false;
  }
}

/** Copies a settled file; false where it was written to meanwhile, or is not there any more. */
async function isCopiedAsItIs(from: string, to: string, state: SourceState): Promise<boolean> {
  try {
    await copyFile(from, to, constants.COPYFILE_FICLONE);
  } catch (error) {
    if (existsSync(from)) throw error;
  }
  if (isSame(await settledState(from), state)) return true;
  await rm(to, { force: true });
  return false;
}

/** Copies a file that others may write to, as it is at one moment; false where it is not there any more. */
async function isCopiedLive(from: string, to: string): Promise<boolean> {
  if (!existsSync(from)) return false;
  try {
    using source = new DatabaseSync(from, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
    await copyDatabase(source, to, { rate: ALL_PAGES });
    return true;
  } catch (error) {
    if (existsSync(from)) throw error;
    await rm(to, { force: true });
    return false;
  }
}

/** The alarms of a class, as workerd keeps them: by their objects' ids, with the names of these, which nothing else tells. */
class AlarmList {
  readonly #file: string;
  readonly #names = new Map<string, string | null>();

  constructor(file: string) {
    this.#file = file;
    this.#read();
  }

  get exists(): boolean {
    return existsSync(this.#file);
  }

  /** Whether an object is in the list. */
  has(id: string): boolean {
    if (!this.#names.has(id)) this.#read(id);
    return this.#names.has(id);
  }

  /** Reads the list, or what it has of an object. It is open for a moment only: a process that starts wants it whole. */
  #read(id?: string): void {
    if (!this.exists) return;
    using database = new DatabaseSync(this.#file, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
    if (!hasAlarms(database)) return;
    const all = "SELECT actor_id AS id, actor_name AS name FROM _cf_ALARM";
    const rows = id === undefined ? database.prepare(all).all() : database.prepare(`${all} WHERE actor_id = ?`).all(id);
    for (const { id: of, name } of rows) this.#names.set(String(of), name === null ? null : String(name));
  }

  /** Writes a list of these objects' alarms: a copy of the class's, with other rows. */
  async write(to: string, objects: readonly BackupFile[]): Promise<void> {
    await isCopiedLive(this.#file, to);
    using database = new DatabaseSync(to);
    if (!hasAlarms(database)) return;
    database.exec("BEGIN; DELETE FROM _cf_ALARM");
    const add = database.prepare("INSERT INTO _cf_ALARM (actor_id, scheduled_time, actor_name) VALUES (?, ?, ?)");
    for (const { path, alarm } of objects) {
      if (alarm !== null) add.run(idOf(path), BigInt(alarm), this.#names.get(idOf(path)) ?? null);
    }
    database.exec("COMMIT");
  }
}

/** A process that was killed while it began has left a list without its table. */
function hasAlarms(database: DatabaseSync): boolean {
  return database.prepare("SELECT 1 FROM sqlite_schema WHERE name = '_cf_ALARM'").get() !== undefined;
}
