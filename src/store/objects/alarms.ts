/**
 * An alarm that should have rung so long ago counts as none: workerd's list of alarms may lack one that its object has, for good (seen
 * where an alarm was set as the one before it ended). Milliseconds.
 */
const LOST_AFTER_MS = 5_000;

/** Tells whether an alarm (Unix milliseconds) is lost. */
export function isLostAlarm(at: number): boolean {
  return at < Date.now() - LOST_AFTER_MS;
}

/** Sets an object's alarm to `at` (Unix milliseconds), unless it rings earlier. */
export async function wakeBy(storage: DurableObjectStorage, at: number): Promise<void> {
  const set = await storage.getAlarm();
  if (set === null || at < set || isLostAlarm(set)) await storage.setAlarm(at);
}
