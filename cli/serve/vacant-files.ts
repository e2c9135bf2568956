import { existsSync, readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";

/** A database without a table has only its first page. */
const VACANT_BYTES = 4_096;

const DATABASE = /^[0-9a-f]{64}\.sqlite$/;

/**
 * Removes the empty databases of a class's folder, and gives their number: a killed process leaves one for an object
 * that it has just begun. To be called while no process has the folder open.
 */
export function removeVacantFiles(folder: string): number {
  const names = new Set(existsSync(folder) ? readdirSync(folder) : []);
  const isFilled = (name: string) => names.has(name) && statSync(join(folder, name)).size > 0;
  let removed = 0;
  for (const name of names) {
    if (!DATABASE.test(name) || statSync(join(folder, name)).size > VACANT_BYTES) continue;
    // The newest writes may be in these files.
    if (isFilled(`${name}-wal`) || isFilled(`${name}-journal`)) continue;
    for (const suffix of ["", "-wal", "-shm"]) rmSync(join(folder, name + suffix), { force: true });
    removed += 1;
  }
  return removed;
}
