import { describe, expect, it } from "vitest";
import { setAlarm, wakeBy } from "../../src/store/objects/alarms.ts";

/** A storage that has an alarm, or none. */
function storageWith(alarm: number | null) {
  const times: number[] = [];
  const storage = { getAlarm: async () => alarm, setAlarm: async (at: number) => void times.push(at) };
  return { storage: storage as unknown as DurableObjectStorage, times };
}

describe("the alarm of an object", () => {
  const now = Date.now();

  it.each([
    ["there is none", null],
    ["the present one rings later", now + 60_000],
  ])("is set where %s", async (_, alarm) => {
    const { storage, times } = storageWith(alarm);
    await wakeBy(storage, now + 30_000);
    expect(times).toEqual([now + 30_000]);
  });

  it.each([
    ["rings earlier", now + 10_000],
    ["is about to ring", now],
  ])("stays where the present one %s", async (_, alarm) => {
    const { storage, times } = storageWith(alarm);
    await wakeBy(storage, now + 30_000);
    expect(times).toEqual([]);
  });

  it.each([
    ["set", setAlarm],
    ["woken", wakeBy],
  ])("rings after the present millisecond when it is %s for a time that has passed", async (_, wake) => {
    const { storage, times } = storageWith(null);
    await wake(storage, now - 1_000);
    await wake(storage, Date.now());
    expect(times.map((at) => at > now)).toEqual([true, true]);
  });

  it("is not postponed again and again where its time has passed", async () => {
    const { storage, times } = storageWith(Date.now());
    await wakeBy(storage, now - 1_000);
    expect(times).toEqual([]);
  });
});
