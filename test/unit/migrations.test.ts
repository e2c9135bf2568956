import { evictDurableObject, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { conversationId, newTurnAddress, parseResponseId, responseId } from "@responses-edge/responses-api/ids";
import { itemId } from "@responses-edge/responses-api/items/registry";
import { describe, expect, it } from "vitest";
import type { Home } from "../../src/store/home/home.ts";
import { migrate, SCHEMA_VERSION, schemaVersion, type TableName, Tables } from "../../src/store/home/tables.ts";
import recorded from "./recordings/logs-of-version-3.json?raw";

/**
 * The tables of each version. They are copies on purpose, because stored data does not change with the code. A new
 * version adds its own here.
 */
const V1: Record<TableName, string> = {
  turns: `CREATE TABLE turns (
    turn TEXT NOT NULL, part INTEGER NOT NULL, parent TEXT, created_at INTEGER NOT NULL,
    position INTEGER, base INTEGER,
    input TEXT NOT NULL, output TEXT NOT NULL, response TEXT,
    PRIMARY KEY (turn, part)) WITHOUT ROWID`,
  runs: `CREATE TABLE runs (
    turn TEXT NOT NULL, part INTEGER NOT NULL, created_at INTEGER NOT NULL, attempts INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (turn, part)) WITHOUT ROWID`,
  events: `CREATE TABLE events (
    turn TEXT NOT NULL, seq_from INTEGER NOT NULL, part INTEGER NOT NULL, seq_to INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (turn, seq_from, part)) WITHOUT ROWID`,
  conversation: `CREATE TABLE conversation (
    id TEXT NOT NULL PRIMARY KEY, created_at INTEGER NOT NULL, metadata TEXT NOT NULL) WITHOUT ROWID`,
  deleted_items: "CREATE TABLE deleted_items (id TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID",
  idempotency: `CREATE TABLE idempotency (
    fingerprint TEXT NOT NULL PRIMARY KEY, home TEXT NOT NULL, turn TEXT NOT NULL,
    created_at INTEGER NOT NULL) WITHOUT ROWID`,
  webhooks: `CREATE TABLE webhooks (
    turn TEXT NOT NULL PRIMARY KEY, response TEXT NOT NULL, type TEXT NOT NULL, created_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL, due INTEGER NOT NULL) WITHOUT ROWID`,
};
const V2: Record<TableName, string> = {
  ...V1,
  turns: `CREATE TABLE turns (
    turn TEXT NOT NULL, part INTEGER NOT NULL, parent TEXT, created_at INTEGER NOT NULL,
    position INTEGER, base INTEGER,
    input TEXT NOT NULL, output TEXT NOT NULL, response TEXT, messages TEXT,
    PRIMARY KEY (turn, part)) WITHOUT ROWID`,
};
const V3: Record<TableName, string> = {
  ...V2,
  idempotency: `CREATE TABLE idempotency (
    fingerprint TEXT NOT NULL PRIMARY KEY, home TEXT NOT NULL, turn TEXT NOT NULL,
    created_at INTEGER NOT NULL, begun INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID`,
};
const V4: Record<TableName, string> = {
  ...V3,
  turns: `CREATE TABLE turns (
    turn TEXT NOT NULL, part INTEGER NOT NULL, parent TEXT, created_at INTEGER NOT NULL,
    position INTEGER, base INTEGER,
    input TEXT NOT NULL, output TEXT NOT NULL, response TEXT, messages TEXT, log TEXT,
    PRIMARY KEY (turn, part)) WITHOUT ROWID`,
};
const V6: Record<TableName, string> = {
  ...V4,
  turns: `CREATE TABLE turns (
    turn TEXT NOT NULL, part INTEGER NOT NULL, parent TEXT, created_at INTEGER NOT NULL,
    position INTEGER, base INTEGER,
    input TEXT NOT NULL, output TEXT NOT NULL, response TEXT, messages TEXT, log TEXT, owner TEXT,
    PRIMARY KEY (turn, part)) WITHOUT ROWID`,
};
const V7: Record<TableName, string> = {
  ...V6,
  conversation: `CREATE TABLE conversation (
    id TEXT NOT NULL PRIMARY KEY, created_at INTEGER NOT NULL, metadata TEXT NOT NULL, owner TEXT) WITHOUT ROWID`,
};
/** Version 5 has the tables of version 4, whose rows have no blobs; version 8 has those of version 7, which keep logs in another form. */
const versions = [
  { version: 1, tables: V1 },
  { version: 2, tables: V2 },
  { version: 3, tables: V3 },
  { version: 5, tables: V4 },
  { version: 6, tables: V6 },
  { version: 8, tables: V7 },
];
const NEWEST = V7;

/** Each version is tested with all tables, and with only the tables that were needed so far. */
const withTables = versions.flatMap(({ version, tables }) => [
  { version, tables, has: "all tables" },
  { version, tables: { turns: tables.turns }, has: "turns only" },
  { version, tables: { idempotency: tables.idempotency }, has: "a key only" },
]);

type Row = Record<string, string | number | null>;

function columnsOf(sql: SqlStorage): Record<string, Row[]> {
  const tables = sql.exec<{ name: string }>("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name");
  const columns = tables
    .toArray()
    .filter(({ name }) => !name.startsWith("_cf_"))
    .map(({ name }) => [name, sql.exec<Row>(`PRAGMA table_info(${name})`).toArray()] as const);
  return Object.fromEntries(columns);
}

/** Writes a row without the columns that its version does not have. */
function insert(sql: SqlStorage, table: TableName, row: Row): void {
  const known = sql.exec<{ name: string }>(`SELECT name FROM pragma_table_info('${table}')`).toArray();
  const names = known.map(({ name }) => name).filter((name) => name in row);
  const values = names.map((name) => row[name] ?? null);
  sql.exec(`INSERT INTO ${table} (${names.join()}) VALUES (${names.map(() => "?").join()})`, ...values);
}

function message(id: string, text: string) {
  return { type: "message", id, role: "user", status: "completed", content: [{ type: "input_text", text }] };
}

/** A closed object with the tables of a version, and one of everything in them. */
async function objectOf(tables: Record<TableName, string>) {
  const [first, second, added] = [newTurnAddress(), newTurnAddress(), newTurnAddress()].map(({ turn }) => turn);
  if (first === undefined || second === undefined || added === undefined) throw new Error("There are three.");
  const { home } = newTurnAddress();
  const stub = env.HOME.getByName(`tenant:${home}`);
  const createdAt = Date.now() - 60_000;
  const conversation = conversationId({ home, turn: added });
  const idOf = (turn: string, side: "input" | "output") => itemId("message", { home, turn }, side, 0);
  const itemsOf = (turn: string, side: "input" | "output", text: string) =>
    JSON.stringify([message(idOf(turn, side), text)]);
  const rawOf = (turn: string) =>
    JSON.stringify([{ item: idOf(turn, "output"), messages: [{ role: "assistant", content: "raw" }] }]);
  const head = (turn: string) =>
    JSON.stringify({ id: responseId({ home, turn }), status: "completed", background: true });
  const long = "多".repeat(200_000);
  const input = itemsOf(first, "input", long);
  const events = ["response.created", "response.completed"].map((type, sequence_number) =>
    JSON.stringify({ type, sequence_number }),
  );
  await runInDurableObject(stub, (_, { storage: { sql } }) => {
    for (const create of Object.values(tables)) sql.exec(create);
    const turn = { created_at: createdAt, base: null, position: null, parent: null, part: 0 };
    const firstRow = { ...turn, turn: first, output: itemsOf(first, "output", "one"), response: head(first) };
    insert(sql, "turns", { ...firstRow, input: input.slice(0, 150_000), messages: rawOf(first) });
    insert(sql, "turns", {
      ...firstRow,
      part: 1,
      input: input.slice(150_000),
      output: "",
      response: "",
      messages: null,
    });
    insert(sql, "turns", {
      ...turn,
      turn: second,
      parent: first,
      input: itemsOf(second, "input", "two"),
      output: itemsOf(second, "output", "three"),
      response: head(second),
      messages: rawOf(second),
    });
    insert(sql, "turns", {
      ...turn,
      turn: added,
      position: 1,
      input: itemsOf(added, "input", "kept"),
      output: itemsOf(added, "output", "taken out"),
      response: null,
      messages: null,
    });
    insert(sql, "conversation", { id: conversation, created_at: createdAt, metadata: '{"a":"b"}' });
    insert(sql, "deleted_items", { id: idOf(added, "output") });
    insert(sql, "events", { turn: second, seq_from: 0, part: 0, seq_to: 1, body: events.join("\n") });
    insert(sql, "idempotency", { fingerprint: "print", home, turn: second, created_at: createdAt, begun: 0 });
    const due = Date.now() + 3_600_000;
    const webhook = { turn: second, response: responseId({ home, turn: second }), type: "response.completed", due };
    insert(sql, "webhooks", { ...webhook, created_at: Math.floor(createdAt / 1000), attempts: 1 });
    expect(schemaVersion(sql)).toBe(versions.find((each) => each.tables === tables)?.version);
  });
  await evictDurableObject(stub);
  return { stub, home, first, second, added, conversation, createdAt, idOf, rawOf, head, input };
}

describe("an object without tables", () => {
  it("gets none when it opens, and has the newest version", async () => {
    const stub = env.HOME.getByName(`tenant:${newTurnAddress().home}`);
    expect(await stub.retrieve("a")).toBeNull();
    await runInDurableObject(stub, (_, { storage }) => {
      migrate(storage);
      expect(columnsOf(storage.sql)).toEqual({});
      expect(schemaVersion(storage.sql)).toBe(SCHEMA_VERSION);
    });
  });
});

describe("the present tables", () => {
  it("are those of the newest version here", async () => {
    expect(SCHEMA_VERSION).toBe(versions.at(-1)?.version);
    const made = await runInDurableObject(env.HOME.getByName("tenant:made"), (_, { storage: { sql } }) => {
      const tables = new Tables(sql);
      for (const name of Object.keys(NEWEST)) tables.make(name as TableName);
      return columnsOf(sql);
    });
    const copied = await runInDurableObject(env.HOME.getByName("tenant:copied"), (_, { storage: { sql } }) => {
      for (const create of Object.values(NEWEST)) sql.exec(create);
      return columnsOf(sql);
    });
    expect(made).toEqual(copied);
  });
});

describe.each(withTables)("an object of version $version with $has", ({ version, tables }) => {
  it("has the present tables after it opens, and is not written to when it opens again", async () => {
    const stub = env.HOME.getByName(`tenant:${newTurnAddress().home}`);
    await runInDurableObject(stub, (_, { storage: { sql } }) => {
      for (const create of Object.values(tables)) sql.exec(create);
      // The version of an absent table cannot be determined, and is not needed.
      expect(schemaVersion(sql)).toBeGreaterThanOrEqual(version);
    });
    await evictDurableObject(stub);
    await runInDurableObject(stub, (_, { storage }) => {
      const expected = Object.keys(tables).map((name) => NEWEST[name as TableName]);
      const opened = columnsOf(storage.sql);
      for (const name of Object.keys(tables)) storage.sql.exec(`DROP TABLE ${name}`);
      for (const create of expected) storage.sql.exec(create);
      expect(opened).toEqual(columnsOf(storage.sql));
      expect(schemaVersion(storage.sql)).toBe(SCHEMA_VERSION);
      const written: string[] = [];
      const sql = new Proxy(storage.sql, {
        get: (target, key) => {
          if (key !== "exec") return Reflect.get(target, key);
          return (query: string) => {
            if (!/^\s*SELECT/.test(query)) written.push(query);
            return target.exec(query);
          };
        },
      });
      migrate({ sql, transactionSync: storage.transactionSync.bind(storage) });
      expect(written).toEqual([]);
    });
  });
});

describe.each(versions)("the data of an object of version $version", ({ version, tables }) => {
  const hasMessages = version >= 2;

  it("is read unchanged", async () => {
    const { stub, first, second, added, conversation, createdAt, idOf, rawOf, head, input } = await objectOf(tables);
    expect(await stub.retrieve(second)).toMatchObject({ head: head(second) });
    const page = await stub.inputItems(first, { limit: 20, order: "asc" });
    expect(page?.ok && page.value.data === input).toBe(true);
    const references = [{ id: idOf(first, "output"), turn: first }];
    const snapshot = await stub.snapshot(second, references);
    if (!snapshot.found) throw new Error("Not found.");
    const ids = (JSON.parse(snapshot.history.items) as { id: string }[]).map(({ id }) => id);
    expect(ids).toEqual([first, second].flatMap((turn) => [idOf(turn, "input"), idOf(turn, "output")]));
    expect(snapshot.history.messages).toBe(
      hasMessages ? `[${[first, second].map((turn) => rawOf(turn).slice(1, -1))}]` : "[]",
    );
    expect(JSON.parse(snapshot.references[idOf(first, "output")] ?? "")).toEqual(message(idOf(first, "output"), "one"));
    expect(await stub.snapshot(null, [{ id: idOf(added, "output"), turn: added }])).toMatchObject({ missing: "item" });
    expect(await stub.conversation(conversation)).toEqual({
      id: conversation,
      object: "conversation",
      created_at: Math.floor(createdAt / 1000),
      metadata: { a: "b" },
    });
    const items = await stub.conversationItems(conversation, { limit: 20, order: "desc" });
    expect(items?.ok && JSON.parse(items.value.data)).toEqual([message(idOf(added, "input"), "kept")]);
    expect(await stub.conversationItem(conversation, idOf(added, "input"))).not.toBeNull();
    expect(await stub.conversationItem(conversation, idOf(added, "output"))).toBeNull();
    const events = await stub.fetch(`http://home/events?turn=${second}&after=0`);
    expect(await events.text()).toContain('"type":"response.completed"');
    expect(await stub.claim("print", "other", "turn")).toMatchObject({ kind: "known", turn: second, begun: false });
  });

  it("is continued, deleted and swept like new data", async () => {
    const { stub, home, first, second, conversation, head, rawOf } = await objectOf(tables);
    const { turn } = newTurnAddress(home);
    const settled = { turn, parent: second, createdAt: Date.now(), input: "[]", output: "[]", messages: rawOf(turn) };
    expect(await stub.settle({ ...settled, response: head(turn), lease: null })).toMatchObject({ ok: true });
    const messages = async (previous: string) => {
      const snapshot = await stub.snapshot(previous, []);
      return snapshot.found ? (JSON.parse(snapshot.history.messages) as unknown[]).length : undefined;
    };
    expect(await messages(turn)).toBe(hasMessages ? 3 : 1);
    await stub.begun("print", home, second);
    expect(await stub.claim("print", "other", "turn")).toMatchObject({ begun: true });
    const next = newTurnAddress(home);
    const items = JSON.stringify([message(itemId("message", next, "input", 0), "more")]);
    expect(await stub.addConversationItems(conversation, next.turn, items, "ticket", 0)).toMatchObject({ ok: true });
    expect(await stub.delete(first)).toBe(true);
    expect(await messages(turn)).toBeUndefined();
    await runInDurableObject(stub, (object: Home) => object.alarm());
    expect(await stub.retrieve(turn)).not.toBeNull();
  });
});

/** Ended runs in the form of version 3, and the bytes that their readers got. */
interface RecordedLog {
  name: string;
  id: string;
  turns: Row[];
  events: Row[];
  stream: string;
}

describe("the log of a run that ended under version 3", () => {
  it.each(JSON.parse(recorded) as RecordedLog[])("is replayed byte for byte: $name", async (log) => {
    const address = parseResponseId(log.id);
    if (!address) throw new Error("It has the id of a response.");
    const stub = env.HOME.getByName(`tenant:${address.home}`);
    await runInDurableObject(stub, (_, { storage: { sql } }) => {
      sql.exec(V3.turns);
      sql.exec(V3.events);
      for (const row of log.turns) insert(sql, "turns", { ...row, created_at: Date.now() });
      for (const row of log.events) insert(sql, "events", row);
    });
    await evictDurableObject(stub);
    const events = log.stream.split("\n\n").filter((frame) => frame.startsWith("event: "));
    for (const after of [-1, 0, 3, events.length - 2]) {
      const answer = await stub.fetch(`http://home/events?turn=${address.turn}&after=${after}`);
      const from = events.slice(0, after + 1).join("").length + 2 * (after + 1);
      expect(await answer.text()).toBe(log.stream.slice(from));
    }
    expect(await stub.delete(address.turn)).toBe(true);
    expect((await stub.fetch(`http://home/events?turn=${address.turn}`)).status).toBe(404);
  });
});

describe("a migration that fails", () => {
  it("leaves the object unchanged", async () => {
    const stub = env.HOME.getByName(`tenant:${newTurnAddress().home}`);
    await runInDurableObject(stub, (_, { storage }) => {
      storage.sql.exec(V1.turns);
      // A view cannot get a column.
      storage.sql.exec("CREATE VIEW idempotency AS SELECT 'print' AS fingerprint");
      const before = columnsOf(storage.sql);
      expect(() => migrate(storage)).toThrow();
      expect(columnsOf(storage.sql)).toEqual(before);
    });
  });
});
