import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { afterEach, expect, it } from "vitest";
import type { BatchRecord } from "../../src/batches/batch-table.ts";
import type { Batches } from "../../src/batches/batches.ts";

let restore = () => {};
// Other files run in the same isolate.
afterEach(() => restore());

it("an unfinished batch can be read where nothing can be written", async () => {
  const stub = env.BATCHES.getByName("full-disk") as DurableObjectStub<Batches>;
  await runInDurableObject(stub, async (batches, { storage }) => {
    const prototype = Object.getPrototypeOf(storage) as DurableObjectStorage;
    const { setAlarm } = prototype;
    // The alarm would ring in the middle.
    prototype.setAlarm = async () => {};
    restore = () => {
      prototype.setAlarm = setAlarm;
    };
    const record = { id: "batch_a", status: "validating", at: {}, total: 0, owner: { tenant: "full-disk" } };
    await batches.create(record as unknown as BatchRecord);
    prototype.setAlarm = async () => {
      throw new Error("database or disk is full: SQLITE_FULL");
    };
    expect(await batches.get("batch_a")).toMatchObject({ id: "batch_a", status: "validating" });
  });
});
