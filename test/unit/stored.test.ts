import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { conversationId, newTurnAddress, responseId } from "@responses-edge/responses-api/ids";
import { NOTHING_STORED, type Stored } from "@responses-edge/usage-limits";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Env } from "../../src/env.ts";
import type { Home } from "../../src/store/home/home.ts";
import { HomeStored } from "../../src/store/home/home-stored.ts";
import { Tables } from "../../src/store/home/tables.ts";
import { TurnStore } from "../../src/store/home/turn-store.ts";
import type { Quota, StoredByKey } from "../../src/store/limits/quota-object.ts";
import { withObjects } from "../../src/store/objects/objects.ts";
import { toCells } from "../../src/store/objects/row-pieces.ts";
import { ToldTogether } from "../../src/store/objects/told-together.ts";

/** The data that homes store, and its amounts in their tenant's quota. */

let tenants = 0;
const newTenant = () => {
  tenants += 1;
  return `stored-${tenants}`;
};

/** A page for each turn and each conversation (docs/keys.md). */
const ROW = 4_096;

interface Kept {
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
  return { ...address, owner, bytes };
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

let restore = () => {};
beforeAll(() =>
  runInDurableObject(quotaOf("any"), (quota: Quota) => {
    const prototype = Object.getPrototypeOf(quota) as Quota;
    const { takeStored } = prototype;
    prototype.takeStored = function (this: Quota, reports) {
      const lost = lose();
      if (lost !== "not done") takeStored.call(this, reports);
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
      const stored = new HomeStored(sql, tables, { tenant: "logs", home: "h" }, withObjects(env));
      expect(stored.byKey()).toEqual({ key: { ...NOTHING_STORED, stored_bytes: ROW + 6 + 15 } });
      sql.exec(turn, "later", 0, null);
      sql.exec(block, "later", 0, 0);
      stored.added("later");
      expect(stored.byKey()[""]?.stored_bytes).toBe(ROW + 3 + 5);
    });
  });

  it("includes an inserted turn by its rows' sizes, without reading them", async () => {
    await runInDurableObject(homeOf("inserted", newTurnAddress().home), async (_, { storage: { sql } }) => {
      const tables = new Tables(sql);
      const stored = new HomeStored(sql, tables, { tenant: "inserted", home: "h" }, withObjects(env));
      expect(stored.byKey()).toEqual({});
      const texts = { input: '["é"]', output: JSON.stringify(["ö".repeat(400_000)]), response: "{}", messages: null };
      for (const owner of ["key", null]) {
        const turn = { ...texts, turn: `of ${owner}`, parent: null, createdAt: 1, base: null, position: null, owner };
        const turns = new TurnStore(tables, () => 0);
        const taken = turns.insert(turn);
        stored.addedTurn(turn, taken.bytes);
        expect(taken.rows).toBeGreaterThan(1);
        expect(turns.insert(turn, true)).toEqual({ rows: 0, bytes: 0 });
      }
      const counted = { ...stored.byKey() };
      stored.forget();
      expect(counted).toEqual(stored.byKey());
    });
  });

  it("is reported again if an older report of the same home was confirmed after a newer one of another", async () => {
    await runInDurableObject(homeOf("late", newTurnAddress().home), async (_, { storage: { sql } }) => {
      const tables = new Tables(sql);
      tables.make("turns");
      const calls: PromiseWithResolvers<void>[] = [];
      const takeStored = () => {
        const call = Promise.withResolvers<void>();
        calls.push(call);
        return call.promise;
      };
      const env = { QUOTAS: { getByName: () => ({ takeStored }) } } as unknown as Env;
      const stored = new HomeStored(sql, tables, { tenant: "late", home: "h" }, env);
      const keepTurn = (turn: string) => {
        const row = "INSERT INTO turns (turn, part, created_at, input, output, owner) VALUES (?, 0, 0, '', '', 'key')";
        sql.exec(row, turn);
        stored.forget();
      };
      keepTurn("first");
      const queued = stored.tellSoon();
      keepTurn("second");
      const direct = stored.tell();
      calls[1]?.resolve();
      await direct;
      calls[0]?.resolve();
      await queued;
      stored.removing(() => sql.exec("DELETE FROM turns WHERE turn = 'second'"));
      const again = stored.tell();
      expect(calls).toHaveLength(3);
      calls[2]?.resolve();
      expect(await again).toBe(true);
    });
  });

  it("is reported at once while little is stored; frequent reports of 50 ms share a call", async () => {
    const together = new ToldTogether<string>();
    const calls: string[][] = [];
    const first = Promise.withResolvers<boolean>();
    const send = (batch: readonly string[]) => {
      calls.push([...batch]);
      return calls.length === 1 ? first.promise : Promise.resolve(true);
    };
    const told: string[] = [];
    const tell = (name: string) => together.tell("tenant", name, { value: name, onTold: () => told.push(name) }, send);
    const homes = Array.from({ length: 18 }, (_, index) => `home-${index}`);
    const telling = homes.map(tell);
    expect(calls).toEqual([["home-0"]]);
    first.resolve(true);
    await scheduler.wait(0);
    telling.push(tell("later"));
    await Promise.all(telling);
    expect(calls).toEqual([["home-0"], [...homes.slice(1), "later"]]);
    expect(told).toEqual([...homes, "later"]);
  });

  it("is counted in bytes of its rows and responses, by key, and freed by deletion", async () => {
    const tenant = newTenant();
    const kept = [await keep(tenant, "key_a", 1_000), await keep(tenant, "key_b", 400_000)];
    kept.push(await keep(tenant, "key_a", 10, kept[1]?.home));
    await expect.poll(() => known(tenant)).toEqual(expected(kept));
    const [first, second, third] = kept as [Kept, Kept, Kept];
    expect(await homeOf(tenant, second.home).delete(second.turn)).toBe(true);
    expect(await known(tenant)).toEqual(expected([first, third]));
    for (const { home, turn } of [first, third]) expect(await homeOf(tenant, home).delete(turn)).toBe(true);
    expect(await known(tenant)).toEqual({});
  });

  it("is not reported if no amount is limited", async () => {
    const tenant = newTenant();
    const { home, turn } = await keep(tenant, null, 100);
    await homeOf(tenant, home).delete(turn);
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
    await expect.poll(() => known(tenant)).toEqual({ key_a: conversation });
    expect(await stub.deleteConversation(id)).toBe(true);
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
    const left = items.length + "[]".length + response.length + 4 + 2 * ROW;
    expect(await known(tenant)).toEqual({
      key_a: { stored_bytes: left, stored_responses: 1, stored_conversations: 0 },
    });
    await stub.delete(turn);
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
        for (const home of homes) await runDurableObjectAlarm(homeOf(tenant, home));
        expect(await known(tenant)).toEqual(expected(kept));
      }),
      { numRuns: 40 },
    );
  });
});

describe("reports to a quota", () => {
  it("count once if they are repeated, and not at all if they were overtaken", async () => {
    const tenant = newTenant();
    const stored = (bytes: number) => ({ key_a: { ...NOTHING_STORED, stored_bytes: bytes } });
    const quota = quotaOf(tenant);
    const now = Date.now();
    await quota.takeStored([{ home: "one", stored: stored(5), at: now }]);
    await quota.takeStored([{ home: "one", stored: stored(5), at: now }]);
    await quota.takeStored([{ home: "one", stored: stored(7), at: now + 2 }]);
    await quota.takeStored([{ home: "one", stored: stored(6), at: now + 1 }]);
    await quota.takeStored([{ home: "two", stored: stored(1), at: now }]);
    expect(await quota.stored()).toEqual(stored(8));
    await evictDurableObject(quota);
    expect(await quotaOf(tenant).stored()).toEqual(stored(8));
    await quotaOf(tenant).takeStored([{ home: "one", stored: {}, at: now + 3 }]);
    expect(await quotaOf(tenant).stored()).toEqual(stored(1));
  });
});
