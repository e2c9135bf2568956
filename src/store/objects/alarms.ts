/** The first time (Unix milliseconds) at which an alarm for `at` can ring. */
const ringableAt = (at: number) => Math.max(at, Date.now() + 1);

/**
 * Sets an object's alarm to `at` (Unix milliseconds), or to the next millisecond where that has passed. If an object sets its alarm,
 * while it rings, to the millisecond for which it rings, workerd takes both for one: the alarm stays in the object, and never rings.
 */
export function setAlarm(storage: DurableObjectStorage, at: number): Promise<void> {
  return storage.setAlarm(ringableAt(at));
}

/** Sets an object's alarm to `at` (Unix milliseconds), unless it rings earlier. */
export async function wakeBy(storage: DurableObjectStorage, at: number): Promise<void> {
  const set = await storage.getAlarm();
  if (set === null || ringableAt(at) < set) await setAlarm(storage, at);
}
