import { existsSync, mkdirSync, readdirSync, renameSync, rmdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { CLASS_NAMES, workerOf } from "../../src/store/objects/registry.ts";
import { METADATA_FILE } from "../backup/object-files.ts";
import { newAlarmList } from "../tools/alarm-lists.ts";
import { uniqueKeyOf } from "./workerd.ts";

/**
 * The data folder of several workers (docs/self-hosting.md). Each has its objects and their alarms in a folder of its
 * own, with the layout of a single process: the first in the data folder itself, the others in folders within it.
 */

const SHARE_FOLDER = /^worker-[1-9]\d{0,2}$/;

/** The files of an object: its database, the write-ahead log and the log's index. */
const OBJECT_FILE = /^([0-9a-f]{64})\.sqlite(?:-wal|-shm|-journal)?$/;

/** The folder of a worker's share, from 0. */
export function shareFolder(data: string, worker: number): string {
  return worker === 0 ? data : join(data, `worker-${worker}`);
}

/** The folders of all shares that a data folder has, the data folder itself first. */
export function shareFolders(data: string): string[] {
  const names = existsSync(data) ? readdirSync(data) : [];
  const numbers = names.filter((name) => SHARE_FOLDER.test(name)).map((name) => Number(name.slice("worker-".length)));
  return [data, ...numbers.sort((one, other) => one - other).map((worker) => shareFolder(data, worker))];
}

/**
 * Moves the files and the alarm of each object into the share of its worker, of this many `workers`. Gives the number
 * of moved objects. To be called while no process has the folder open. The next call finishes an interrupted one.
 */
export function dealShares(data: string, workers: number): number {
  for (let worker = 1; worker < workers; worker += 1) {
    mkdirSync(shareFolder(data, worker), { recursive: true, mode: 0o700 });
  }
  let moved = 0;
  for (const from of shareFolders(data)) {
    for (const name of CLASS_NAMES.map(uniqueKeyOf)) {
      const folder = join(from, name);
      if (!existsSync(folder)) continue;
      const ofObject = (id: string) => join(shareFolder(data, workerOf(id, workers)), name);
      moveAlarms(folder, ofObject);
      moved += moveFiles(folder, ofObject);
    }
  }
  for (const left of shareFolders(data).slice(1)) if (Number(left.split("-").at(-1)) >= workers) removeEmpty(left);
  return moved;
}

/** Removes the folder of an unused share: its lists of alarms are empty. Files in quarantine stay. */
function removeEmpty(share: string): void {
  for (const folder of CLASS_NAMES.map((name) => join(share, uniqueKeyOf(name)))) {
    if (!existsSync(folder)) continue;
    for (const file of readdirSync(folder)) if (file.startsWith(METADATA_FILE)) rmSync(join(folder, file));
    rmdirSync(folder);
  }
  if (readdirSync(share).length === 0) rmdirSync(share);
}

function moveFiles(folder: string, folderOf: (id: string) => string): number {
  let moved = 0;
  for (const file of readdirSync(folder)) {
    const [, id] = OBJECT_FILE.exec(file) ?? [];
    const into = id === undefined ? folder : folderOf(id);
    if (into === folder) continue;
    mkdirSync(into, { recursive: true, mode: 0o700 });
    renameSync(join(folder, file), join(into, file));
    if (file.endsWith(".sqlite")) moved += 1;
  }
  return moved;
}

/** Alarms move before their objects: if two lists have an alarm, the one without its object has no effect. */
function moveAlarms(folder: string, folderOf: (id: string) => string): void {
  const file = join(folder, METADATA_FILE);
  if (!existsSync(file)) return;
  using source = new DatabaseSync(file);
  if (!source.prepare("SELECT 1 FROM sqlite_schema WHERE name = '_cf_ALARM'").get()) return;
  const select = source.prepare("SELECT actor_id AS id, scheduled_time AS at, actor_name AS name FROM _cf_ALARM");
  select.setReadBigInts(true);
  const rows = select.all() as { id: string; at: bigint; name: string | null }[];
  const byFolder = Map.groupBy(rows, ({ id }) => folderOf(id));
  byFolder.delete(folder);
  for (const [into, alarms] of byFolder) {
    mkdirSync(into, { recursive: true, mode: 0o700 });
    const list = join(into, METADATA_FILE);
    using target = existsSync(list) ? new DatabaseSync(list) : newAlarmList(list);
    target.exec("BEGIN");
    const add = target.prepare(
      "INSERT OR REPLACE INTO _cf_ALARM (actor_id, scheduled_time, actor_name) VALUES (?, ?, ?)",
    );
    for (const { id, at, name } of alarms) add.run(id, at, name);
    target.exec("COMMIT");
    const remove = source.prepare("DELETE FROM _cf_ALARM WHERE actor_id = ?");
    source.exec("BEGIN");
    for (const { id } of alarms) remove.run(id);
    source.exec("COMMIT");
  }
}
