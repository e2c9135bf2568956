import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";

/** The folder in which Linux lists the open files of the reading process. */
const OPEN_FILE_LIST = "/proc/self/fd";

/** A larger limit counts as unlimited. */
const MAX_FILES = 1_048_576;

/** The usual limit, if the real one is unknown. */
const DEFAULT_FILES = 1_024;

/** Files of a client's connection: its socket, and the pair through which workerd forwards it. */
const FILES_PER_CONNECTION = 3;

/** Files of a turn: the connection of its client, and that to its model server. */
const FILES_PER_TURN = FILES_PER_CONNECTION + 1;

/** A lower limit of open files causes a warning. */
const USUAL_FILES = 16_384;

/**
 * The limit of open files for children of this process. Node raises its own soft limit to the hard one when it starts,
 * and its children inherit it.
 */
export function openFilesLimit(): number {
  const limit = limitOfLinux() ?? limitOfShell() ?? String(DEFAULT_FILES);
  return limit === "unlimited" ? MAX_FILES : Math.min(Number(limit), MAX_FILES);
}

/** The number of turns that leaves half of the files to homes and idle connections. */
export function turnsWithin(files: number): number {
  return Math.max(1, Math.floor(files / 2 / FILES_PER_TURN));
}

/** The warning about a low limit of open files; undefined if it is high enough. */
export function fewFiles(files: number): string | undefined {
  if (files >= USUAL_FILES) return undefined;
  const connections = Math.floor(files / FILES_PER_CONNECTION);
  const what = `workerd dies when it has no file for a connection, which is below ${connections} connections`;
  return `Only ${files} files may be open (ulimit -Hn): ${what}. Set the limit to ${USUAL_FILES} or more.`;
}

/** `OPEN_FILE_LIST` where there is one. */
export function openFileList(): string | undefined {
  return existsSync(OPEN_FILE_LIST) ? OPEN_FILE_LIST : undefined;
}

function limitOfLinux(): string | undefined {
  const limits = "/proc/self/limits";
  if (!existsSync(limits)) return undefined;
  return /^Max open files\s+(\d+|unlimited)/m.exec(readFileSync(limits, "utf8"))?.[1];
}

function limitOfShell(): string | undefined {
  const { stdout } = spawnSync("sh", ["-c", "ulimit -n"], { encoding: "utf8" });
  return /^(\d+|unlimited)$/.exec(stdout?.trim() ?? "")?.[1];
}
