/** Sets an object's alarm to `at` (Unix milliseconds), unless it rings earlier. */
export async function wakeBy(storage: DurableObjectStorage, at: number): Promise<void> {
  const set = await storage.getAlarm();
  if (set === null || at < set) await storage.setAlarm(at);
}
