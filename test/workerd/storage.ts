import { existsSync, readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync, type SQLInputValue, type SQLOutputValue } from "node:sqlite";
import { objectId as objectIdOf } from "../../cli/object-ids.ts";
import { uniqueKeyOf } from "../../cli/workerd.ts";

/** The storage of a gateway's objects. SQLite lets other processes read its files while workerd has them open. */
export class ObjectStorage {
  readonly #directory: string;

  /** `directory` is the namespace's folder in workerd's disk service. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** The ids of all objects that have stored data. */
  ids(): string[] {
    if (!existsSync(this.#directory)) return [];
    const files = readdirSync(this.#directory).filter((name) => /^[0-9a-f]{64}\.sqlite$/.test(name));
    return files.map((name) => name.slice(0, 64)).sort();
  }

  /** The rows of a query in the object with an id. Empty if it has stored nothing. */
  exec(id: string, sql: string, ...values: SQLInputValue[]): Record<string, SQLOutputValue>[] {
    const file = join(this.#directory, `${id}.sqlite`);
    if (!existsSync(file)) return [];
    const database = new DatabaseSync(file, { timeout: 10_000 });
    try {
      return database
        .prepare(sql)
        .all(...values)
        .map((row) => ({ ...row }));
    } finally {
      database.close();
    }
  }

  /**
   * Tells whether the home of a response, a conversation or an item of this id is in memory: a workerd has its file
   * open (Linux).
   */
  isAwake(itsId: string): boolean {
    const file = join(this.#directory, `${objectId(`local:${homeKey(itsId)}`)}.sqlite`);
    const processes = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
    return processes.some((pid) => isWorkerd(`/proc/${pid}/comm`) && openFiles(`/proc/${pid}/fd`).includes(file));
  }

  /**
   * The bytes of the files of the home of a response, a conversation or an item of this id: the database, and its
   * write-ahead log.
   */
  bytesAt(itsId: string): number {
    const file = join(this.#directory, `${objectId(`local:${homeKey(itsId)}`)}.sqlite`);
    const sizes = [file, `${file}-wal`].map((name) => statSync(name, { throwIfNoEntry: false })?.size ?? 0);
    return sizes.reduce((sum, size) => sum + size);
  }

  /** The rows of a query in the home of a response, a conversation or an item of this id. */
  execAt(itsId: string, sql: string, ...values: SQLInputValue[]): Record<string, SQLOutputValue>[] {
    return this.exec(objectId(`local:${homeKey(itsId)}`), sql, ...values);
  }
}

function isWorkerd(file: string): boolean {
  try {
    return readFileSync(file, "utf8") === "workerd\n";
  } catch {
    // The process has ended meanwhile.
    return false;
  }
}

/** The files behind a process's descriptors; empty for another user's process, and for one that has ended. */
function openFiles(directory: string): string[] {
  return namesIn(directory).map((name) => {
    try {
      return readlinkSync(join(directory, name));
    } catch {
      // The file was closed meanwhile.
      return "";
    }
  });
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

/** The home key in an id: 22 characters behind the prefix. */
export function homeKey(id: string): string {
  const start = id.indexOf("_") + 1;
  return id.slice(start, start + 22);
}

/** The id that workerd derives from an object's name (`idFromName`). */
export function objectId(name: string, uniqueKey = uniqueKeyOf("Home")): string {
  return objectIdOf(name, uniqueKey);
}
