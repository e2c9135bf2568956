import { logLine } from "@responses-edge/bounded-io/json-text";
import { ApiError } from "@responses-edge/responses-api/errors";
import { processState, type Suspect } from "./process-state.ts";
import { OBJECTS, type ObjectBinding } from "./registry.ts";

/**
 * Objects whose file is damaged. The runtime only says that an object has failed. The launcher of a self-hosted process
 * checks the files (`cli/serve/damage-watch.ts`) of the objects that this process suspects, and reports the damaged ones.
 * Nothing checks them on Cloudflare, which keeps copies.
 */

/** Objects that have failed and were not checked yet, by id. */
const suspected = new Map<string, Suspect>();
/** The damaged ones among them, with the bindings of their classes. */
const damaged = new Map<string, ObjectBinding>();

/** Most ids of each kind that are remembered. */
const MAX_IDS = 10_000;

/** The runtime gives a number, or SQLite's own message. */
const OF_DAMAGE = /^internal error; reference = |SQLITE_(?:CORRUPT|NOTADB)/;
const OF_STORAGE = /^internal error; reference = |SQLITE_(?:CORRUPT|NOTADB|READONLY|FULL|IOERR|CANTOPEN)/;

/** Milliseconds that a failed request waits for the launcher's finding. */
const WAIT_MS = 2_000;
const POLL_MS = 100;

/** Gives the objects to check, and forgets them. */
export function takeSuspects(): Suspect[] {
  const taken = [...suspected.values()];
  suspected.clear();
  return taken;
}

/** Takes the launcher's finding: objects whose files are damaged. */
export function noteDamaged(found: readonly Pick<Suspect, "id" | "binding">[]): void {
  for (const { id, binding } of found) if (damaged.size < MAX_IDS) damaged.set(id, binding);
}

/** The number of damaged objects that this process knows, by their class. Those of a quarantine are gone with the process before. */
export function damagedObjects(): Map<string, number> {
  const counts = new Map<string, number>();
  for (const binding of damaged.values()) {
    const { className } = OBJECTS[binding];
    counts.set(className, (counts.get(className) ?? 0) + 1);
  }
  return counts;
}

/**
 * True for an error of an object's storage, such as a full disk. The runtime then breaks the object, and gives its caller only a
 * number; the writes of the same transaction are lost. A query that finds damage may fail alone, with SQLite's message.
 */
export function isOfStorage(error: unknown): boolean {
  return error instanceof Error && OF_STORAGE.test(error.message);
}

function mayBeDamage(error: unknown): boolean {
  return error instanceof Error && OF_DAMAGE.test(error.message);
}

/** The error of a call of an object: the 500 if its file is damaged, or the 503 of the directory of keys. Waits for the launcher's finding, if there is a launcher. */
export async function faultOf(error: unknown, suspect: () => Suspect): Promise<unknown> {
  if (!mayBeDamage(error) || !processState.hasLauncher || processState.isDiskClosed) return error;
  const called = suspect();
  const { id, binding } = called;
  if (!damaged.has(id) && !suspected.has(id) && suspected.size < MAX_IDS) {
    suspected.set(id, called);
    // The launcher reads the log. The runtime does not name the damage in each case.
    console.warn(logLine({ level: "warn", event: "object_suspected", binding }));
  }
  for (let waited = 0; waited < WAIT_MS && !damaged.has(id); waited += POLL_MS) await scheduler.wait(POLL_MS);
  if (!damaged.has(id)) return error;
  return binding === "KEYS" ? keysDamaged() : storageDamaged();
}

/** The code of a directory of keys that is damaged. */
export const KEYS_DAMAGED = "keys_damaged";

/** 503 rather than 500: nothing is wrong with the request or its data, and no request with a key can be served. */
function keysDamaged(): ApiError {
  return new ApiError({
    status: 503,
    message:
      "This server's directory of API keys is damaged, so that it cannot check any key. The operator's log names the file; a retry does not help.",
    code: KEYS_DAMAGED,
    headers: { "x-should-retry": "false" },
  });
}

function storageDamaged(): ApiError {
  return new ApiError({
    status: 500,
    message: "The stored data of this request is damaged. The operator's log names the file; a retry does not help.",
    code: "storage_damaged",
    headers: { "x-should-retry": "false" },
  });
}
