import { existsSync } from "node:fs";
import { basename, dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { damageIn, namesIn, newAlarmList } from "../tools/alarm-lists.ts";
import type { BackupFile } from "./backup-manifest.ts";
import { BUSY_TIMEOUT_MS, isCopiedLive } from "./live-copy.ts";
import { objectIdOf } from "./object-files.ts";

/**
 * The alarms of a class, as workerd keeps them: by their objects' ids, with the objects' names, which are stored
 * nowhere else.
 */
export class AlarmList {
  /** One list for each share that has objects of the class. */
  readonly #files: readonly string[];
  readonly #names = new Map<string, string | null>();
  /**
   * True if a list cannot be read: the backup's list is then made from the objects, with the names in the list's bytes.
   */
  readonly isDamaged: boolean;

  constructor(files: readonly string[]) {
    this.#files = files.filter((file) => existsSync(file));
    const damaged = this.#files.filter((file) => damageIn(file) !== undefined);
    this.isDamaged = damaged.length > 0;
    for (const file of this.#files) {
      if (!damaged.includes(file)) this.#read(file);
      else for (const [id, name] of namesIn(file, basename(dirname(file)))) this.#names.set(id, name);
    }
  }

  get exists(): boolean {
    return this.#files.length > 0;
  }

  /** Tells whether an object is in the list. */
  has(id: string): boolean {
    if (this.isDamaged) return true;
    if (!this.#names.has(id)) for (const file of this.#files) this.#read(file, id);
    return this.#names.has(id);
  }

  /**
   * Reads the list, or its row of an object. It is open for a moment only, because a starting process needs it
   * exclusively.
   */
  #read(file: string, id?: string): void {
    using database = new DatabaseSync(file, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
    if (!hasAlarms(database)) return;
    const all = "SELECT actor_id AS id, actor_name AS name FROM _cf_ALARM";
    const rows = id === undefined ? database.prepare(all).all() : database.prepare(`${all} WHERE actor_id = ?`).all(id);
    for (const { id: of, name } of rows) this.#names.set(String(of), name === null ? null : String(name));
  }

  /** Writes a list of these objects' alarms: a copy of one of the class's lists, with other rows. */
  async write(to: string, objects: readonly BackupFile[]): Promise<void> {
    if (!this.isDamaged) await isCopiedLive(this.#files[0] ?? "", to);
    using database = this.isDamaged ? newAlarmList(to) : new DatabaseSync(to);
    if (!hasAlarms(database)) return;
    database.exec("BEGIN; DELETE FROM _cf_ALARM");
    const add = database.prepare("INSERT INTO _cf_ALARM (actor_id, scheduled_time, actor_name) VALUES (?, ?, ?)");
    for (const { path, alarm } of objects) {
      const name = this.#names.get(objectIdOf(path)) ?? null;
      if (alarm !== null && !(this.isDamaged && name === null)) add.run(objectIdOf(path), BigInt(alarm), name);
    }
    database.exec("COMMIT");
  }
}

/** A process that was killed at its start leaves a list without its table. */
function hasAlarms(database: DatabaseSync): boolean {
  return database.prepare("SELECT 1 FROM sqlite_schema WHERE name = '_cf_ALARM'").get() !== undefined;
}
