import { basename } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";

/** The files of objects, in a data folder and in a backup. */

/** A class's list of alarms. */
export const METADATA_FILE = "metadata.sqlite";
/** The name of an object's database in the folder of its class. */
export const OBJECT_FILE = /^[0-9a-f]{64}\.sqlite$/;

/** An object's id, from the name of its file. */
export function objectIdOf(path: string): string {
  return basename(path, ".sqlite");
}

/** The fault that SQLite finds in a file without writers; undefined if the file is intact. Leaves no file beside it. */
export function faultIn(path: string): string | undefined {
  try {
    using database = openQuiet(path);
    const [row] = database.prepare("PRAGMA quick_check(1)").all();
    const [said] = Object.values(row ?? {});
    return said === "ok" ? undefined : String(said);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** The time of the alarm of the object in a file, Unix nanoseconds. For a copy, which has no writer. */
export function alarmIn(path: string): bigint | null {
  using database = openQuiet(path);
  const has = database.prepare("SELECT 1 FROM sqlite_schema WHERE name = '_cf_METADATA'").get();
  if (!has) return null;
  // The alarm is the first of an object's metadata.
  const statement = database.prepare("SELECT value FROM _cf_METADATA WHERE key = 1");
  statement.setReadBigInts(true);
  const value = statement.get()?.value;
  return typeof value === "bigint" ? value : null;
}

/** Opens a file without changing it: SQLite makes no write-ahead log beside it, and looks for none. */
export function openQuiet(path: string): DatabaseSync {
  const url = pathToFileURL(path);
  url.searchParams.set("immutable", "1");
  return new DatabaseSync(url, { readOnly: true });
}
