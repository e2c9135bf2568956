import { existsSync, mkdirSync, rmSync } from "node:fs";
import { copyFile, rename } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { workerOf } from "../../src/store/objects/registry.ts";
import { checkMarker, openFolderAsItIs } from "../serve/data-folder.ts";
import { EXIT, Refusal } from "../serve/refusal.ts";
import { shareFolder } from "../serve/shares.ts";
import { checkWrittenBy } from "../serve/written-by.ts";
import { newAlarmList, quarantine } from "../tools/alarm-lists.ts";
import { makeDurable, readManifest, sha256Of } from "./backup-manifest.ts";
import { backupAt } from "./backup-series.ts";
import { alarmIn, faultIn, METADATA_FILE, OBJECT_FILE } from "./object-files.ts";
import type { RestoreOptions } from "./restore.ts";

/** `restore --only FILE`: one object of a backup into a data folder that has the others, such as after damage to its file. */

export interface RestoredObject {
  /** The object's file, absolute. */
  file: string;
  /** The time at which the backup began. */
  startedAt: string;
  /** The place of the file that was there before; undefined if there was none. */
  quarantined: string | undefined;
}

/**
 * `only` is the object's file as the log and `doctor` name it: `CLASS/ID.sqlite`. A file that is there goes into quarantine. Throws a
 * Refusal if the backup lacks the object or has it damaged, or the data folder is in use; then the data folder is unchanged.
 */
export async function restoreObject({
  from,
  at,
  data,
  only,
}: RestoreOptions & { only: string }): Promise<RestoredObject> {
  const source = backupAt(from, at);
  const manifest = readManifest(source);
  checkWrittenBy(manifest, `The backup ${source}`);
  const found = manifest.files.find(({ path }) => path === only);
  if (!found || !OBJECT_FILE.test(basename(only))) {
    throw new Refusal(
      EXIT.usage,
      `The backup ${source} has no object ${only}: expected CLASS/ID.sqlite, as the log has it.`,
    );
  }
  const path = resolve(data);
  if (!existsSync(path)) throw new Refusal(EXIT.noAccess, `There is no folder ${path}.`);
  using _folder = await openFolderAsItIs(path);
  const { workers = 1 } = checkMarker(path) ?? {};
  if (workers === 0)
    throw new Refusal(EXIT.busy, "The objects are being moved between workers. Start the server first.");
  const id = basename(only, ".sqlite");
  const folder = join(shareFolder(path, workerOf(id, workers)), dirname(only));
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const file = join(folder, basename(only));
  const copy = `${file}.restoring`;
  try {
    await copyFile(join(source, only), copy);
    if ((await sha256Of(copy)) !== found.sha256 || faultIn(copy)) {
      throw new Refusal(
        EXIT.damaged,
        `The backup ${source} is incomplete. Missing or damaged: ${only}. Nothing was restored.`,
      );
    }
    await makeDurable(copy);
    const isThere = existsSync(file) || existsSync(`${file}-wal`);
    const quarantined = isThere ? quarantine(file) : undefined;
    await rename(copy, file);
    await makeDurable(folder);
    listAlarm(file, join(source, dirname(only), METADATA_FILE));
    return { file, startedAt: manifest.started_at, quarantined };
  } finally {
    rmSync(copy, { force: true });
  }
}

/** Puts the alarm that an object has into the list of its folder, under the name that the backup's list has. */
function listAlarm(file: string, backupList: string): void {
  const at = alarmIn(file);
  if (at === null || !existsSync(backupList)) return;
  const id = basename(file, ".sqlite");
  using source = new DatabaseSync(backupList, { readOnly: true });
  const name = source.prepare("SELECT actor_name AS name FROM _cf_ALARM WHERE actor_id = ?").get(id)?.name;
  if (typeof name !== "string") return;
  const list = join(dirname(file), METADATA_FILE);
  using target = existsSync(list) ? new DatabaseSync(list) : newAlarmList(list);
  const add = "INSERT OR REPLACE INTO _cf_ALARM (actor_id, scheduled_time, actor_name) VALUES (?, ?, ?)";
  target.prepare(add).run(id, at, name);
}
