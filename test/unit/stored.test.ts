import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { conversationId, newTurnAddress, responseId } from "@responses-edge/responses-api/ids";
import { NOTHING_STORED, type Stored } from "@responses-edge/usage-limits";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Home } from "../../src/store/home/home.ts";
import { HomeStored } from "../../src/store/home/home-stored.ts";
import { Tables } from "../../src/store/home/tables.ts";
import type { Quota, StoredByKey } from "../../src/store/limits/quota-object.ts";
import { withObjects } from "../../src/store/objects/objects.ts";
import { toCells } from "../../src/store/objects/row-pieces.ts";

/** The data that homes store, and its amounts in their tenant's quota. */

let tenants = 0;
const newTenant = () => {
  tenants += 1;
  return `stored-${tenants}`;
};

/** A page for each turn and each conversation (docs/keys.md). */
const ROW = 4_096;

interface Kept {
  tenant: string;
  home: string;
  turn: string;
  owner: string | null;
  bytes: number;
}

/** The bytes of a text in its rows. A long one is compressed. */
function bytesOf(text: string): number {
  const lengths = toCells(text).map(
    (cell) => (typeof cell === "string" ? new TextEncoder().encode(cell) : cell).length,
  );
  return lengths.reduce((sum, length) => sum + length, 0);
}

const homeOf = (tenant: string, home: string) => env.HOME.getByName(`${tenant}:${home}`);
const quotaOf = (tenant: string) => env.QUOTAS.getByName(tenant);

/** Stores a response whose texts take this many bytes. */
async function keep(tenant: string, owner: string | null, length: number, home?: string): Promise<Kept> {
  const address = newTurnAddress(home);
  const [input, output] = [`["${"é".repeat(Math.floor(length / 2))}"]`, "[]"];
  const response = JSON.stringify({ id: responseId(address), status: "completed" });
  const turn = { turn: address.turn, parent: null, createdAt: Date.now(), input, output, messages: null, response };
  const settled = await homeOf(tenant, address.home).settle({ ...turn, owner, lease: null });
  expect(settled.ok).toBe(true);
  const bytes = bytesOf(input) + bytesOf(output) + bytesOf(response) + ROW;
  return { tenant, ...address, owner, bytes };
}

/** The quota's amounts, without keys that store nothing. */
async function known(tenant: string): Promise<StoredByKey> {
  const stored = await quotaOf(tenant).stored();
  return Object.fromEntries(
    Object.entries(stored).filter(([, each]) => Object.values(each).some((figure) => figure !== 0)),
  );
}

function expected(kept: readonly Kept[]): StoredByKey {
  const sums: Record<string, Stored> = {};
  for (const { owner, bytes } of kept) {
    const before = sums[owner ?? ""] ?? NOTHING_STORED;
    sums[owner ?? ""] = {
      ...before,
      stored_bytes: before.stored_bytes + bytes,
      stored_responses: before.stored_responses + 1,
    };
  }
  return sums;
}

/** The loss of the next call to a quota: either its answer is lost, or the call itself. */
let lose: () => "done" | "not done" | undefined = () => undefined;

/** Sees the home of each report. */
let note: (home: string) => void = () => {};

/** Lets the alarm of a home ring. */
const ring = async ({ tenant, home }: Kept) => {
  await runDurableObjectAlarm(homeOf(tenant, home));
};

let restore = () => {};
beforeAll(() =>
  runInDurableObject(quotaOf("any"), (quota: Quota) => {
    const prototype = Object.getPrototypeOf(quota) as Quota;
    const { takeStored } = prototype;
    prototype.takeStored = function (this: Quota, home, stored) {
      note(home);
      const lost = lose();
      if (lost !== "not done") takeStored.call(this, home, stored);
      if (lost) throw new Error("The call was lost.");
    };
    restore = () => {
      prototype.takeStored = takeStored;
    };
  }),
);
// Other files run in the same isolate.
afterAll(() => restore());

describe("stored data", () => {
  it("includes the blocks of logs outside of turns' rows, but not those of runs", async () => {
    await runInDurableObject(homeOf("logs", newTurnAddress().home), (_, { storage: { sql } }) => {
      const tables = new Tables(sql);
      tables.make("turns");
      tables.make("events");
      const turn = "INSERT INTO turns (turn, part, created_at, input, output, owner) VALUES (?, ?, 0, 'abc', '', ?)";
      for (const part of [0, 1]) sql.exec(turn, "ended", part, "key");
      const block = "INSERT INTO events (turn, seq_from, part, seq_to, body) VALUES (?, ?, 0, ?, 'abcde')";
      for (const at of [0, 1, 2]) sql.exec(block, "ended", at, at);
      sql.exec(block, "runs", 0, 0);
      const stored = new HomeStored(
        tables,
        { tenant: "logs", home: "h" },
        { env: withObjects(env), isEmpty: () => false },
      );
      expect(stored.byKey()).toEqual({ key: { ...NOTHING_STORED, stored_bytes: ROW + 6 + 15 } });
      sql.exec(turn, "later", 0, null);
      sql.exec(block, "later", 0, 0);
      expect(stored.byKey()[""]?.stored_bytes).toBe(ROW + 3 + 5);
    });
  });

  it("of several turns is reported in one call, which no turn waits for", async () => {
    const tenant = newTenant();
    const calls: string[] = [];
    note = (home) => calls.push(home);
    const first = await keep(tenant, "key_a", 1_000);
    const kept = [first, await keep(tenant, "key_a", 10, first.home), await keep(tenant, "key_b", 10, first.home)];
    expect(calls).toEqual([]);
    await ring(first);
    expect(calls).toEqual([first.home]);
    expect(await known(tenant)).toEqual(expected(kept));
    await ring(first);
    expect(calls).toEqual([first.home]);
  });

  it("is counted in bytes of its rows and responses, by key, and freed by deletion", async () => {
    const tenant = newTenant();
    const kept = [await keep(tenant, "key_a", 1_000), await keep(tenant, "key_b", 400_000)];
    kept.push(await keep(tenant, "key_a", 10, kept[1]?.home));
    const [first, second, third] = kept as [Kept, Kept, Kept];
    for (const home of [first, second]) await ring(home);
    expect(await known(tenant)).toEqual(expected(kept));
    expect(await homeOf(tenant, second.home).delete(second.turn)).toBe(true);
    await ring(second);
    expect(await known(tenant)).toEqual(expected([first, third]));
    for (const { home, turn } of [first, third]) expect(await homeOf(tenant, home).delete(turn)).toBe(true);
    for (const home of [first, third]) await ring(home);
    expect(await known(tenant)).toEqual({});
  });

  it("is not reported if no amount is limited", async () => {
    const tenant = newTenant();
    const kept = await keep(tenant, null, 100);
    await ring(kept);
    await homeOf(tenant, kept.home).delete(kept.turn);
    await runInDurableObject(quotaOf(tenant), (_, { storage: { sql } }) => {
      expect(sql.exec("SELECT name FROM sqlite_schema WHERE name = 'stored'").toArray()).toEqual([]);
    });
  });

  it("of a conversation is freed when it is deleted, with the items that were added to it", async () => {
    const tenant = newTenant();
    const address = newTurnAddress();
    const id = conversationId(address);
    const stub = homeOf(tenant, address.home);
    const items = JSON.stringify([{ type: "message", id: "msg_1", role: "user", content: "x".repeat(100_000) }]);
    await stub.createConversation(id, address.turn, { a: "b" }, items, "key_a");
    const bytes = bytesOf(items) + "[]".length + JSON.stringify({ a: "b" }).length + 2 * ROW;
    const conversation = { stored_bytes: bytes, stored_responses: 0, stored_conversations: 1 };
    await runDurableObjectAlarm(stub);
    expect(await known(tenant)).toEqual({ key_a: conversation });
    expect(await stub.deleteConversation(id)).toBe(true);
    await runDurableObjectAlarm(stub);
    expect(await known(tenant)).toEqual({});
    await runInDurableObject(stub, (_: Home, { storage: { sql } }) => {
      expect(sql.exec("SELECT name FROM sqlite_schema WHERE name = 'turns'").toArray()).toEqual([]);
    });
  });

  it("of a conversation counts until no response needs it", async () => {
    const tenant = newTenant();
    const address = newTurnAddress();
    const stub = homeOf(tenant, address.home);
    const items = JSON.stringify([{ type: "message", id: "msg_1", role: "user", content: "x".repeat(1_000) }]);
    await stub.createConversation(conversationId(address), address.turn, {}, items, "key_a");
    const { turn } = newTurnAddress(address.home);
    const socket = await stub.fetch(
      `http://home/conversation?${new URLSearchParams({ id: conversationId(address), ticket: "t", wait: "0" })}`,
      { headers: { upgrade: "websocket" } },
    );
    socket.webSocket?.accept();
    const response = JSON.stringify({ id: responseId({ home: address.home, turn }), status: "completed" });
    const settled = { turn, parent: null, createdAt: Date.now(), input: "[]", output: "[]", messages: null, response };
    const kept = await stub.settle({ ...settled, owner: "key_a", lease: { token: "t", joins: true } });
    expect(kept.ok).toBe(true);
    await stub.deleteConversation(conversationId(address));
    await runDurableObjectAlarm(stub);
    const left = items.length + "[]".length + response.length + 4 + 2 * ROW;
    expect(await known(tenant)).toEqual({
      key_a: { stored_bytes: left, stored_responses: 1, stored_conversations: 0 },
    });
    await stub.delete(turn);
    await runDurableObjectAlarm(stub);
    expect(await known(tenant)).toEqual({});
  });

  it("is known in the end, after any stores, deletions, expiries, lost or repeated calls and deaths", async () => {
    const key = fc.constantFrom("key_a", "key_b");
    const step = fc.oneof(
      fc.record({ kind: fc.constant("keep" as const), key, length: fc.nat(5_000), at: fc.nat(), isNew: fc.boolean() }),
      fc.record({ kind: fc.constant("delete" as const), at: fc.nat() }),
      fc.record({ kind: fc.constant("die" as const), at: fc.nat() }),
      fc.record({ kind: fc.constant("expire" as const), at: fc.nat() }),
      fc.record({ kind: fc.constant("ring" as const), at: fc.nat() }),
    );
    const losses = fc.array(fc.constantFrom("done" as const, "not done" as const, undefined), { maxLength: 10 });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 12 }), losses, async (steps, lost) => {
        const tenant = newTenant();
        const losing = [...lost];
        lose = () => losing.pop();
        let kept: Kept[] = [];
        const homes = new Set<string>();
        const some = <Item>(items: readonly Item[], at: number): Item | undefined => items[at % items.length];
        for (const each of steps) {
          if (each.kind === "keep") {
            const made = await keep(tenant, each.key, each.length, each.isNew ? undefined : some([...homes], each.at));
            homes.add(made.home);
            kept.push(made);
            continue;
          }
          const home = some([...homes], each.at);
          if (home === undefined) continue;
          const stub = homeOf(tenant, home);
          if (each.kind === "die") {
            // Only a running process can die.
            await runInDurableObject(stub, () => {});
            await evictDurableObject(stub);
          } else if (each.kind === "ring") await runDurableObjectAlarm(stub);
          else if (each.kind === "expire") {
            await runInDurableObject(stub, (_, { storage: { sql } }) => {
              const has = sql.exec("SELECT 1 FROM sqlite_schema WHERE name = 'turns'").toArray().length > 0;
              if (has) sql.exec("UPDATE turns SET created_at = 1");
            });
            await evictDurableObject(stub);
            kept = kept.filter((turn) => turn.home !== home);
          } else {
            const turn = some(kept, each.at);
            if (!turn) continue;
            expect(await homeOf(tenant, turn.home).delete(turn.turn)).toBe(true);
            kept = kept.filter((other) => other !== turn);
          }
        }
        // From now on nothing is lost, and every alarm fires.
        losing.length = 0;
        for (const home of homes) {
          await runInDurableObject(homeOf(tenant, home), (_, { storage: { sql } }) => {
            const has = sql.exec("SELECT 1 FROM sqlite_schema WHERE name = 'outbox'").toArray().length > 0;
            if (has) sql.exec("UPDATE outbox SET due = 0");
          });
          await runDurableObjectAlarm(homeOf(tenant, home));
        }
        expect(await known(tenant)).toEqual(expected(kept));
      }),
      { numRuns: 20 },
    );
  });
});

describe("reports to a quota", () => {
  it("replace the last one of their home", async () => {
    const tenant = newTenant();
    const stored = (bytes: number) => ({ key_a: { ...NOTHING_STORED, stored_bytes: bytes } });
    const quota = quotaOf(tenant);
    await quota.takeStored("one", stored(5));
    await quota.takeStored("one", stored(7));
    await quota.takeStored("one", stored(7));
    await quota.takeStored("two", stored(1));
    expect(await quota.stored()).toEqual(stored(8));
    await evictDurableObject(quota);
    expect(await quotaOf(tenant).stored()).toEqual(stored(8));
    await quotaOf(tenant).takeStored("one", {});
    expect(await quotaOf(tenant).stored()).toEqual(stored(1));
  });
});
