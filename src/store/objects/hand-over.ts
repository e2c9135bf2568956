import { logLine } from "@responses-edge/bounded-io/json-text";
import { type RawBindings, stubOf, undisturbed } from "./objects.ts";
import { type Carried, forgetLife, livingObjects, type OwnedObject, takeCarried } from "./owned-object.ts";
import { runsAreSuspended, setOwnership, setSuspending, untilCallsEnd } from "./ownership.ts";
import type { ObjectName } from "./registry.ts";

/** The two steps by which a self-hosted process passes its objects to another one (`ownership.ts`). */

/** Objects that are asked concurrently. */
const ASKED_TOGETHER = 64;

/** The time for calls under way, and for the end of one object. Milliseconds. */
const CALLS_MS = 1_000;
const CLOSE_MS = 5_000;

/** Most rounds of closing: an object may begin while the others are closed. */
const MAX_ROUNDS = 5;

/** Counts the commands: an earlier one that is still under way does nothing more. */
let commands = 0;

/**
 * Closes all objects of this process, whose calls wait from then on. Runs get `suspendMs` to reach a point from which
 * their logs go on; everything else that is under way is cut off, as by a crash. Gives what `takeOver` needs.
 */
export async function closeObjects(env: RawBindings, suspendMs: number): Promise<Carried[]> {
  commands += 1;
  const command = commands;
  setSuspending(true);
  // Together: most have nothing to wait for, and the others wait for as long.
  await Promise.allSettled(livingObjects().map((object) => stubOf<OwnedObject>(env, object).suspend(suspendMs)));
  if (command !== commands) return [];
  setOwnership("ending");
  await untilCallsEnd(CALLS_MS);
  if (command !== commands) return [];
  setOwnership("moving");
  return closeAll(env);
}

/** Makes this process run the objects: those of another one that has closed them, or its own again. */
export async function takeOver(env: RawBindings, carried: readonly Carried[]): Promise<void> {
  commands += 1;
  // Suspended runs go on when their objects begin again.
  const own = runsAreSuspended() ? await closeAll(env) : [];
  await ofEach([...own, ...carried], ({ object, state }) =>
    undisturbed(env, object, () => stubOf<OwnedObject>(env, object).takeOver(state)).catch((error: unknown) =>
      noteLost(object, error instanceof Error ? error.name : typeof error),
    ),
  );
  setSuspending(false);
  setOwnership("owns");
}

async function closeAll(env: RawBindings): Promise<Carried[]> {
  for (let round = 0; round < MAX_ROUNDS && livingObjects().length > 0; round += 1) {
    await ofEach(livingObjects(), async (object) => {
      // The call ends with its object.
      const closed = stubOf<OwnedObject>(env, object)
        .close()
        .then(
          () => true,
          () => true,
        );
      if (!(await Promise.race([closed, scheduler.wait(CLOSE_MS)]))) noteLost(object, "close");
      forgetLife(object);
    });
  }
  return takeCarried();
}

/** Says in the log that what an object had in memory is lost, as by a crash. */
function noteLost({ binding }: ObjectName, error: string): void {
  console.error(logLine({ level: "error", hand_over: binding, error }));
}

async function ofEach<T>(all: readonly T[], work: (each: T) => Promise<void>): Promise<void> {
  const left = all.values();
  const worker = async () => {
    // One that fails is closed as it is.
    for (const each of left) await work(each).catch(() => {});
  };
  await Promise.all(Array.from({ length: ASKED_TOGETHER }, worker));
}
