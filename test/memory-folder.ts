import { chmodSync, mkdtempSync, readFileSync, rmSync, statfsSync } from "node:fs";
import { freemem } from "node:os";
import { join } from "node:path";

/** A file system in memory, as Linux has it. */
const MEMORY = "/dev/shm";

/** As a line of `/proc/mounts` names it. Tests also start programs from their folders. */
const MOUNTED = new RegExp(`^\\S+ ${MEMORY} tmpfs rw(?!\\S*\\bnoexec\\b)`, "m");

/** Bytes that must be free there, and in memory. */
const NEEDED = 4 * 1024 ** 3;

/**
 * Has this process, and those that it starts, make temporary files in memory, where a write costs no work of a disk. Tests kill
 * processes, not machines: a file that a killed process wrote is there afterwards, as on a disk. Changes nothing
 * if TMPDIR is set, or if the system has no such file system with enough free bytes.
 */
export function useMemoryFolder(): void {
  if (process.env.TMPDIR || !hasMemoryFolder()) return;
  // The paths of Unix sockets, which are in these folders, have at most 107 bytes.
  const folder = mkdtempSync(join(MEMORY, "tests-"));
  // As `/tmp`: tests start programs as other users.
  chmodSync(folder, 0o1777);
  process.env.TMPDIR = folder;
  process.once("exit", () => rmSync(folder, { recursive: true, force: true, maxRetries: 10 }));
}

function hasMemoryFolder(): boolean {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    return MOUNTED.test(readFileSync("/proc/mounts", "utf8")) && bavail * bsize >= NEEDED && freemem() >= NEEDED;
  } catch {
    // Another system than Linux.
    return false;
  }
}
