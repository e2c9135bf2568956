import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { GATHER_MS, MAX_ATTEMPTS, OUTBOX_TABLE, Outbox, retryWaitMs } from "../../../src/store/objects/outbox.ts";

/** The messages of an object to others: each is delivered at least once, whatever dies in between. */

type Kinds = { note: { text: string }; other: { text: string }; size: Record<string, never> };

let objects = 0;
let deliver: (kind: string, key: string, payload: object) => Promise<void>;
let delivered: string[];
let isPending: boolean;
let logged: string[];

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date"] });
  delivered = [];
  isPending = false;
  logged = [];
  deliver = async (kind, key, payload) => void delivered.push(`${kind} ${key} ${JSON.stringify(payload)}`);
  vi.spyOn(console, "error").mockImplementation((line) => void logged.push(String(line)));
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

interface Rig {
  /** Another instance of the object, as after the death of its process. */
  begin(): Outbox<Kinds>;
  rows(): { kind: string; key: string; attempts: number }[];
  transaction<T>(body: () => T): T;
  /** When the alarm would ring, Unix milliseconds. */
  alarm(): number;
}

/** Runs a test in the storage of an object of its own. */
async function inObject(test: (rig: Rig) => Promise<void>): Promise<void> {
  objects += 1;
  await runInDurableObject(env.QUOTAS.getByName(`outbox-${objects}`), async (_, { storage }) => {
    let alarm = Number.POSITIVE_INFINITY;
    const exec = <Row extends Record<string, SqlStorageValue>>(statement: string, ...bindings: SqlStorageValue[]) => {
      storage.sql.exec(OUTBOX_TABLE);
      return storage.sql.exec<Row>(statement, ...bindings).toArray();
    };
    await test({
      begin: () =>
        new Outbox<Kinds>({
          sql: { rows: exec, write: exec },
          deliver: {
            note: (payload, key) => deliver("note", key, payload),
            other: (payload, key) => deliver("other", key, payload),
            size: (payload, key) => deliver("size", key, payload),
          },
          states: { size: () => isPending },
          wake: (at) => {
            alarm = Math.min(alarm, at);
          },
        }),
      rows: () => exec("SELECT kind, key, attempts FROM outbox ORDER BY kind, key"),
      transaction: (body) => storage.transactionSync(body),
      alarm: () => alarm,
    });
  });
}

const fail = () => Promise.reject(new Error("The receiver is gone."));

describe("a message", () => {
  it("is due at once, and removed when it is delivered", () =>
    inObject(async ({ begin, rows, alarm }) => {
      const outbox = begin();
      outbox.add("note", "a", { text: "one" });
      expect(alarm()).toBe(Date.now());
      expect(outbox.isEmpty).toBe(false);
      await outbox.deliver();
      expect(delivered).toEqual(['note a {"text":"one"}']);
      expect(rows()).toEqual([]);
      expect(outbox.isEmpty).toBe(true);
      expect(outbox.nextDue()).toBeNull();
    }));

  it("replaces the one with its kind and key, also one that is being delivered", () =>
    inObject(async ({ begin, rows }) => {
      const outbox = begin();
      outbox.add("note", "a", { text: "one" });
      outbox.add("note", "a", { text: "two" });
      outbox.add("note", "b", { text: "three" });
      const arrived = Promise.withResolvers<void>();
      const slow = Promise.withResolvers<void>();
      const { deliver: take } = { deliver };
      deliver = async (...message) => {
        await take(...message);
        arrived.resolve();
        await slow.promise;
      };
      const delivering = outbox.deliver();
      await arrived.promise;
      outbox.add("note", "a", { text: "four" });
      slow.resolve();
      await delivering;
      expect(delivered).toEqual(['note a {"text":"two"}', 'note b {"text":"three"}']);
      expect(rows()).toHaveLength(1);
      await outbox.deliver();
      expect(delivered.at(-1)).toBe('note a {"text":"four"}');
      expect(rows()).toEqual([]);
    }));

  it("goes with the transaction that it was added in", () =>
    inObject(async ({ begin, rows, transaction }) => {
      const outbox = begin();
      const rolledBack = () =>
        transaction(() => {
          outbox.add("note", "a", { text: "one" });
          throw new Error("Rolled back.");
        });
      expect(rolledBack).toThrow("Rolled back.");
      expect(rows()).toEqual([]);
      expect(outbox.nextDue()).toBeNull();
      await outbox.deliver();
      expect(delivered).toEqual([]);
    }));

  it("survives its process, and each attempt of a later one is counted before it begins", () =>
    inObject(async ({ begin, rows }) => {
      begin().add("note", "a", { text: "one" });
      for (const attempts of [1, 2]) {
        let isCounted = false;
        deliver = () => {
          isCounted = rows()[0]?.attempts === attempts;
          // The process dies.
          return new Promise(() => {});
        };
        vi.setSystemTime(Date.now() + retryWaitMs(attempts));
        void begin().deliver();
        await vi.waitFor(() => expect(isCounted).toBe(true));
      }
    }));

  it("is attempted again at growing intervals, delays no other, and is given up in the end, by its name alone", () =>
    inObject(async ({ begin, rows }) => {
      const outbox = begin();
      const { deliver: take } = { deliver };
      deliver = (...message) => (message[1] === "bad" ? fail() : take(...message));
      outbox.add("note", "bad", { text: "secret" });
      outbox.add("note", "good", { text: "one" });
      outbox.add("other", "good", { text: "two" });
      await outbox.deliver();
      expect(delivered.toSorted()).toEqual(['note good {"text":"one"}', 'other good {"text":"two"}']);
      let attempts = 1;
      for (let due = outbox.nextDue(); due !== null; due = outbox.nextDue()) {
        expect(due - Date.now()).toBe(retryWaitMs(attempts - 1));
        await outbox.deliver();
        expect(rows()).toEqual([{ kind: "note", key: "bad", attempts }]);
        vi.setSystemTime(due);
        await outbox.deliver();
        attempts += 1;
      }
      expect(attempts).toBe(MAX_ATTEMPTS + 1);
      expect(rows()).toEqual([]);
      expect(logged).toHaveLength(MAX_ATTEMPTS + 1);
      expect(JSON.parse(logged.at(-1) ?? "")).toMatchObject({ outbox: "note", key: "bad", given_up: true });
      expect(logged.join()).not.toContain("secret");
    }));
});

describe("a state", () => {
  it("is delivered once for many changes, and takes no row", () =>
    inObject(async ({ begin, rows, alarm }) => {
      const outbox = begin();
      const at = Date.now();
      for (let change = 0; change < 9; change += 1) outbox.note("size");
      isPending = true;
      expect(alarm()).toBe(at + GATHER_MS);
      expect(rows()).toEqual([]);
      deliver = async (kind) => {
        delivered.push(kind);
        isPending = false;
        expect(rows()).toEqual([]);
      };
      await outbox.deliver();
      await outbox.deliver();
      expect(delivered).toEqual(["size"]);
      expect(outbox.isEmpty).toBe(true);
      expect(outbox.nextDue()).toBeNull();
    }));

  it("is delivered by an instance that does not know whether it was changed, and counted like a message", () =>
    inObject(async ({ begin, rows }) => {
      isPending = true;
      deliver = fail;
      const outbox = begin();
      await outbox.deliver();
      expect(rows()).toEqual([{ kind: "size", key: "", attempts: 1 }]);
      expect(outbox.nextDue()).toBe(Date.now() + retryWaitMs(0));
      outbox.note("size");
      // It waits all the same.
      expect(outbox.nextDue()).toBe(Date.now() + retryWaitMs(0));
      vi.setSystemTime(Date.now() + retryWaitMs(0));
      deliver = async (kind) => void delivered.push(kind);
      await outbox.deliver();
      expect(delivered).toEqual(["size"]);
      expect(rows()).toEqual([]);
    }));

  it("that changes during its delivery is delivered again", () =>
    inObject(async ({ begin }) => {
      const outbox = begin();
      isPending = true;
      outbox.note("size");
      deliver = async (kind) => {
        delivered.push(kind);
        if (delivered.length === 1) outbox.note("size");
      };
      await outbox.deliver();
      expect(outbox.nextDue()).toBe(Date.now() + GATHER_MS);
      await outbox.deliver();
      expect(delivered).toEqual(["size", "size"]);
    }));
});

it("an outbox whose object is erased waits for its delivery under way", () =>
  inObject(async ({ begin }) => {
    const outbox = begin();
    const slow = Promise.withResolvers<void>();
    outbox.add("note", "a", { text: "one" });
    deliver = () => slow.promise;
    void outbox.deliver();
    let isOver = false;
    const over = outbox.forget().then(() => {
      isOver = true;
    });
    await Promise.resolve();
    expect(isOver).toBe(false);
    slow.resolve();
    await over;
    expect(outbox.nextDue()).toBeNull();
  }));
