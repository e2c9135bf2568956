import { existsSync, readdirSync, rmSync } from "node:fs";
import { basename, join, relative, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { CLASS_NAMES } from "../../src/store/objects/registry.ts";
import { METADATA_FILE, OBJECT_FILE } from "../backup/object-files.ts";
import { MARKER_FILE, openFolderAsItIs, readMarker, UNFINISHED_RESTORE } from "../serve/data-folder.ts";
import { EXIT, Refusal } from "../serve/refusal.ts";
import { shareFolders } from "../serve/shares.ts";
import { uniqueKeyOf } from "../serve/workerd.ts";
import { alarmsOf, damageIn, namesIn, quarantine, rebuildAlarmList } from "./alarm-lists.ts";

/**
 * `doctor DIR`: checks a data folder that no process serves, and prints its faults. With `--repair` it repairs, and
 * moves files that it cannot repair into quarantine: it deletes nothing.
 */

export interface Finding {
  /** A file within the folder. */
  file: string;
  /** In words. */
  what: string;
  /** The repair; undefined if there was none, or none is possible. */
  done?: string;
}

export interface Diagnosis {
  folder: string;
  objects: number;
  findings: Finding[];
}

/** Throws a Refusal if the folder is in use, or cannot be read. */
export async function diagnose(data: string, repairs: boolean): Promise<Diagnosis> {
  const path = resolve(data);
  if (!existsSync(path)) throw new Refusal(EXIT.noAccess, `There is no folder ${path}.`);
  using _folder = await openFolderAsItIs(path);
  const findings: Finding[] = [...checkMarker(path, repairs), ...checkRestore(path)];
  let objects = 0;
  const classes = CLASS_NAMES.map(uniqueKeyOf);
  const folders = shareFolders(path).flatMap((share) => classes.map((name) => join(share, name)));
  for (const folder of folders) {
    const name = relative(path, folder);
    if (!existsSync(folder)) continue;
    for (const file of readdirSync(folder).filter((each) => OBJECT_FILE.test(each))) {
      objects += 1;
      const fault = damageIn(join(folder, file));
      if (fault === undefined) continue;
      const done = repairs ? { done: `moved to ${quarantine(join(folder, file))}` } : {};
      findings.push({ file: `${name}/${file}`, what: `damaged: ${fault}`, ...done });
    }
    findings.push(...strayLogs(folder, name, repairs), ...checkAlarms(folder, name, repairs));
  }
  return { folder: path, objects, findings };
}

function checkMarker(path: string, repairs: boolean): Finding[] {
  try {
    readMarker(path);
    return [];
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const file = MARKER_FILE;
    // The next `serve` writes a new marker. It still refuses tables of a newer version, by the tables themselves.
    if (repairs) quarantineMarker(path);
    return [
      {
        file,
        what: "not what this program has written",
        ...(repairs && { done: "removed: the next start writes it" }),
      },
    ];
  }
}

function quarantineMarker(path: string): void {
  rmSync(join(path, MARKER_FILE));
}

function checkRestore(path: string): Finding[] {
  if (!existsSync(join(path, UNFINISHED_RESTORE))) return [];
  return [{ file: UNFINISHED_RESTORE, what: "a restore was interrupted: empty the folder, and restore again" }];
}

/** Write-ahead logs without their database: SQLite would use them for a new one. */
function strayLogs(folder: string, name: string, repairs: boolean): Finding[] {
  const files = new Set(readdirSync(folder));
  return [...files]
    .filter((file) => /\.sqlite-wal$/.test(file) && !files.has(file.slice(0, -4)))
    .map((file) => {
      const done = repairs ? { done: `moved to ${quarantine(join(folder, file))}` } : {};
      return { file: `${name}/${file}`, what: "an orphan: its database is gone", ...done };
    });
}

/** Compares the list of alarms with the objects' own alarms. */
function checkAlarms(folder: string, name: string, repairs: boolean): Finding[] {
  const path = join(folder, METADATA_FILE);
  const file = `${name}/${METADATA_FILE}`;
  if (!existsSync(path)) return [];
  const fault = damageIn(path);
  if (fault !== undefined) {
    const what = `the list of alarms is damaged: ${fault}`;
    if (!repairs) return [{ file, what }];
    const { alarms, nameless } = rebuildAlarmList(folder);
    return [{ file, what, done: `rebuilt from the objects: ${alarms} alarms${lost(nameless)}` }];
  }
  using database = new DatabaseSync(path);
  if (!database.prepare("SELECT 1 FROM sqlite_schema WHERE name = '_cf_ALARM'").get()) return [];
  const select = database.prepare("SELECT actor_id AS id, scheduled_time AS at FROM _cf_ALARM");
  select.setReadBigInts(true);
  const listed = new Map(select.all().map(({ id, at }) => [String(id), at as bigint]));
  const findings: Finding[] = [];
  const owned = new Map(alarmsOf(folder));
  const names = [...owned.keys()].every((id) => listed.has(id)) ? undefined : namesIn(path, basename(folder));
  const put = `INSERT INTO _cf_ALARM (actor_id, scheduled_time, actor_name) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET scheduled_time = excluded.scheduled_time`;
  for (const [id, at] of owned) {
    if (listed.get(id) === at) continue;
    const objectName = names?.get(id);
    const isNameless = !listed.has(id) && objectName === undefined;
    if (repairs && !isNameless) database.prepare(put).run(id, at, objectName ?? null);
    const what = listed.has(id)
      ? "its alarm has another time in the list"
      : `its alarm is not in the list${isNameless ? ", and its name is unknown" : ""}`;
    const done = repairs && !isNameless && { done: "the list has the object's" };
    findings.push({ file: `${name}/${id}.sqlite`, what, ...done });
  }
  for (const id of listed.keys()) {
    if (existsSync(join(folder, `${id}.sqlite`))) continue;
    if (repairs) database.prepare("DELETE FROM _cf_ALARM WHERE actor_id = ?").run(id);
    const what = `an orphan: an alarm of a missing object (${id})`;
    findings.push({ file, what, ...(repairs && { done: "taken out of the list" }) });
  }
  return findings;
}

function lost(nameless: readonly string[]): string {
  return nameless.length === 0
    ? ""
    : `; of ${nameless.length} objects the names were not found, and their alarms are lost`;
}

/** `doctor`: prints the faults of a folder. Throws a Refusal if faults are left. */
export async function doctor(
  data: string,
  repairs: boolean,
  tell: (level: "info" | "warn", message: string, fields: object) => void,
): Promise<void> {
  const { folder, objects, findings } = await diagnose(data, repairs);
  for (const { file, what, done } of findings) {
    tell("warn", `${file}: ${what}${done === undefined ? "" : ` – ${done}`}.`, { file, what, ...(done && { done }) });
  }
  const left = findings.filter(({ done }) => done === undefined).length;
  tell("info", `${objects} objects in ${folder}: ${findings.length} findings, ${left} of them as they were.`, {
    folder,
    objects,
  });
  if (left > 0) {
    const how = repairs
      ? "The rest cannot be repaired here."
      : "`--repair` repairs files, and moves the rest into quarantine.";
    throw new Refusal(EXIT.damaged, `The data folder ${folder} is damaged. ${how}`);
  }
}
