import { ApiError } from "@responses-edge/responses-api/errors";
import { processState, type Suspect } from "./process-state.ts";

/**
 * Objects whose file is damaged. The runtime says no more of one than that it has failed: the launcher of a process of one's own looks at the
 * files (`cli/damage-watch.ts`) of those that this process suspects, and tells which are. Nobody looks on Cloudflare, which keeps copies.
 */

/** Objects that have failed and were not looked at, by their ids. */
const suspected = new Map<string, Suspect>();
const damaged = new Set<string>();

/** Ids that are remembered of each kind. */
const MAX_IDS = 10_000;

const OF_STORAGE = /^internal error; reference = |SQLITE_(?:CORRUPT|NOTADB)/;

/** How long a request that has failed waits for the launcher's word, in milliseconds. */
const WAIT_MS = 2_000;
const LOOK_MS = 100;

/** Takes the objects that are to be looked at. */
export function takeSuspects(): Suspect[] {
  const taken = [...suspected.values()];
  suspected.clear();
  return taken;
}

export function noteDamaged(ids: readonly string[]): void {
  for (const id of ids) if (damaged.size < MAX_IDS) damaged.add(id);
}

/**
 * True of an error of an object's storage, such as a full disk. The runtime breaks the object off then, and tells who has called it no more
 * than a number; what was written in the same transaction is not there. A query that finds damage may fail alone, with SQLite's words.
 */
export function isOfStorage(error: unknown): boolean {
  return error instanceof Error && OF_STORAGE.test(error.message);
}

/** The error of a call of an object: the 500 where its file is damaged. Waits for the launcher's word, where there is one. */
export async function faultOf(error: unknown, suspect: () => Suspect): Promise<unknown> {
  if (!isOfStorage(error) || !processState.hasLauncher || processState.disk === "low") return error;
  const called = suspect();
  const { id } = called;
  if (!damaged.has(id) && suspected.size < MAX_IDS) suspected.set(id, called);
  for (let waited = 0; waited < WAIT_MS && !damaged.has(id); waited += LOOK_MS) await scheduler.wait(LOOK_MS);
  return damaged.has(id) ? storageDamaged() : error;
}

function storageDamaged(): ApiError {
  return new ApiError({
    status: 500,
    message:
      "What this server has stored of this is damaged. Its operator's log names the file; trying again does not help.",
    code: "storage_damaged",
    headers: { "x-should-retry": "false" },
  });
}
