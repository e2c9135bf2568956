import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { alarmIn, METADATA_FILE, OBJECT_FILE } from "../backup/object-files.ts";
import { objectId } from "./object-ids.ts";

/**
 * The list of the alarms of a class, which workerd reads: an object's id, the time of its alarm, and the object's name.
 * Each object also has its own alarm in its file, so that a damaged list can be rebuilt. Names are only in the list:
 * the object's id proves which bytes of a damaged list are its name.
 */

const SUFFIXES = ["", "-wal", "-shm"] as const;

/** The folder within a data folder for damaged files. It belongs to no class, so workerd does not read it. */
export const QUARANTINE = "quarantine";

/** Moves a file of an object or a list into quarantine, with the files that belong to it. Gives its new place. */
export function quarantine(file: string): string {
  const data = dirname(dirname(file));
  const folder = join(data, QUARANTINE, basename(dirname(file)));
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const name = `${basename(file)}.${new Date().toISOString().replaceAll(":", "-")}`;
  for (const suffix of SUFFIXES) if (existsSync(file + suffix)) renameSync(file + suffix, join(folder, name + suffix));
  return join(folder, name);
}

/**
 * The damage that SQLite finds in a file that others may have open; undefined if the file is whole. Throws where it cannot be read for
 * another reason.
 */
export function damageIn(file: string): string | undefined {
  try {
    using database = new DatabaseSync(file, { readOnly: true, timeout: 10_000 });
    const [row] = database.prepare("PRAGMA quick_check(1)").all();
    const [said] = Object.values(row ?? {});
    // Its first line may only name the place.
    return said === "ok"
      ? undefined
      : (String(said)
          .split("\n")
          .find((line) => !line.startsWith("***")) ?? String(said));
  } catch (error) {
    if (isDamage(error)) return error instanceof Error ? error.message : String(error);
    throw error;
  }
}

/** SQLITE_CORRUPT and SQLITE_NOTADB. */
const DAMAGE = [11, 26];

/** True of an error by which SQLite says that a file is damaged. */
export function isDamage(error: unknown): boolean {
  return error instanceof Error && "errcode" in error && DAMAGE.includes(Number(error.errcode) & 0xff);
}

export interface RebuiltList {
  /** The path of the damaged list, in quarantine. */
  quarantined: string;
  alarms: number;
  /** Ids of objects that have an alarm, but whose names were not found. The list does not have their alarms. */
  nameless: string[];
}

/**
 * Makes the list of a class's folder again, from the alarms in its objects. To be called while no process has the
 * folder open.
 */
export function rebuildAlarmList(folder: string): RebuiltList {
  const file = join(folder, METADATA_FILE);
  const names = namesIn(file, basename(folder));
  const quarantined = quarantine(file);
  const nameless: string[] = [];
  using database = newAlarmList(file);
  database.exec("BEGIN");
  const add = database.prepare("INSERT INTO _cf_ALARM (actor_id, scheduled_time, actor_name) VALUES (?, ?, ?)");
  let alarms = 0;
  for (const [id, at] of alarmsOf(folder)) {
    const name = names.get(id);
    if (name === undefined) {
      nameless.push(id);
      continue;
    }
    add.run(id, at, name);
    alarms += 1;
  }
  database.exec("COMMIT");
  return { quarantined, alarms, nameless };
}

/** A list without alarms, as workerd makes it. */
export function newAlarmList(file: string): DatabaseSync {
  const database = new DatabaseSync(file);
  const columns = "actor_id TEXT PRIMARY KEY, scheduled_time INTEGER, actor_name TEXT";
  database.exec(`CREATE TABLE _cf_ALARM (${columns}) WITHOUT ROWID`);
  return database;
}
/** The alarms that the objects of a folder have, by the objects' ids. Unix nanoseconds. Leaves out damaged objects. */
export function* alarmsOf(folder: string): Generator<[id: string, at: bigint]> {
  for (const name of readdirSync(folder).filter((each) => OBJECT_FILE.test(each))) {
    try {
      const at = liveAlarmIn(join(folder, name));
      if (at !== null) yield [basename(name, ".sqlite"), at];
    } catch (error) {
      if (!isDamage(error)) throw error;
    }
  }
}

/** The alarm of an object. Its latest value may be in the write-ahead log. */
function liveAlarmIn(file: string): bigint | null {
  if (!existsSync(`${file}-wal`)) return alarmIn(file);
  using database = new DatabaseSync(file, { readOnly: true });
  if (!database.prepare("SELECT 1 FROM sqlite_schema WHERE name = '_cf_METADATA'").get()) return null;
  const statement = database.prepare("SELECT value FROM _cf_METADATA WHERE key = 1");
  statement.setReadBigInts(true);
  const value = statement.get()?.value;
  return typeof value === "bigint" ? value : null;
}

/** The form of objects' names in this program: a tenant's name, or a tenant's name with a key; and the board's. */
const NAME = /[A-Za-z0-9_.-]{1,70}(?::[A-Za-z0-9:_-]{1,80})?/g;

/** The longest run of such letters that is searched: pages with other contents have none. */
const MAX_RUN = 4_096;
const BYTES_BEFORE = 8;
const BYTES_BEHIND = 4;

/** Names of objects, by their ids, that stand somewhere in the bytes of a list and its log. The id proves each name. */
export function namesIn(file: string, uniqueKey: string): Map<string, string> {
  const ids = new Set(
    readdirSync(dirname(file))
      .filter((name) => OBJECT_FILE.test(name))
      .map((name) => name.slice(0, 64)),
  );
  const names = new Map<string, string>();
  for (const suffix of ["", "-wal"]) {
    if (!existsSync(file + suffix)) continue;
    const text = readFileSync(file + suffix, "latin1");
    for (const [run] of text.matchAll(NAME)) {
      for (const name of partsOf(run)) {
        const id = objectId(name, uniqueKey);
        if (!ids.has(id)) continue;
        names.set(id, name);
        break;
      }
    }
  }
  return names;
}

/**
 * The parts of a run of letters that may be the name. Neighbouring bytes (of the row's number and of the next row) may
 * look like letters.
 */
function* partsOf(run: string): Generator<string> {
  if (run.length > MAX_RUN) return;
  for (let behind = 0; behind <= BYTES_BEHIND; behind += 1) {
    for (let before = 0; before <= BYTES_BEFORE; before += 1) {
      const name = run.slice(before, run.length - behind);
      if (name !== "") yield name;
    }
  }
}
