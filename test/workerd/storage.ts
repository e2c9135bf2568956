import { existsSync, readdirSync, readlinkSync, statSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync, type SQLInputValue, type SQLOutputValue } from "node:sqlite";
import { uniqueKeyOf } from "../../cli/serve/workerd.ts";
import { objectId as objectIdOf } from "../../cli/tools/object-ids.ts";

/** The storage of a gateway's objects. SQLite lets other processes read its files while workerd has them open. */
export class ObjectStorage {
  readonly #directory: string;
  readonly #process: (() => number | undefined) | undefined;

  /** `directory` is the namespace's folder in workerd's disk service; `process` gives the id of that workerd's process. */
  constructor(directory: string, process?: () => number | undefined) {
    this.#directory = directory;
    this.#process = process;
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
   * Tells whether the home of a response, a conversation or an item of this id is in memory: its workerd has its file
   * open (Linux). Throws if the process is not known.
   */
  isAwake(itsId: string): boolean {
    const file = join(this.#directory, `${objectId(`local:${homeKey(itsId)}`)}.sqlite`);
    return openFiles(`/proc/${this.#process?.()}/fd`).includes(file);
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

/** The files behind a process's descriptors. */
function openFiles(directory: string): string[] {
  return readdirSync(directory).map((name) => {
    try {
      return readlinkSync(join(directory, name));
    } catch {
      // The file was closed meanwhile.
      return "";
    }
  });
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
