import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import { expect, it } from "vitest";
import type { Migration } from "../../src/store/objects/registry.ts";
import { migrate, Schema } from "../../src/store/objects/schema.ts";

/** A class of version 1, and the same class of a version 2 that only this test knows. */
const V1 = ["CREATE TABLE t (a TEXT NOT NULL)", "CREATE TABLE u (c TEXT)"];
const V2 = ["CREATE TABLE t (a TEXT NOT NULL, b INTEGER NOT NULL DEFAULT 7)", "CREATE TABLE u (c TEXT)"];
const TO_2: Migration = {
  table: "t",
  column: "b",
  statements: ["ALTER TABLE t ADD COLUMN b INTEGER NOT NULL DEFAULT 7", "UPDATE t SET b = 8 WHERE a = 'eight'"],
};

/** Runs a test with the storage of an object that nothing else uses. */
function withStorage(test: (storage: DurableObjectStorage) => void): Promise<void> {
  return runInDurableObject(env.QUOTAS.getByName(crypto.randomUUID()), (_, { storage }) => test(storage));
}

function tablesIn({ sql }: DurableObjectStorage): string[] {
  const names = sql.exec<{ name: string }>("SELECT name FROM sqlite_schema WHERE type = 'table'").toArray();
  return names.map(({ name }) => name).filter((name) => !name.startsWith("_cf_"));
}

it("an object of version 1 is migrated with its rows: completely or not at all, and once", async () => {
  await withStorage((storage) => {
    const { sql } = storage;
    const before = new Schema(storage, V1);
    before.write("INSERT INTO t (a) VALUES ('kept'), ('eight')");
    const broken = { ...TO_2, statements: [...TO_2.statements, "NO SQL"] };
    expect(() => new Schema(storage, V2, [broken]).open()).toThrow();
    expect(sql.exec("SELECT * FROM t").toArray()).toEqual([{ a: "kept" }, { a: "eight" }]);
    // A read opens the tables, too.
    const rows = new Schema(storage, V2, [TO_2]).rows("SELECT a, b FROM t");
    expect(rows).toEqual([
      { a: "kept", b: 7 },
      { a: "eight", b: 8 },
    ]);
    sql.exec("UPDATE t SET b = 0");
    new Schema(storage, V2, [TO_2]).open();
    expect(sql.exec("SELECT DISTINCT b FROM t").toArray()).toEqual([{ b: 0 }]);
    // A home creates each table with the first write that needs it: an absent table is not migrated, and not created.
    sql.exec("DROP TABLE t");
    migrate(storage, [TO_2]);
    expect(tablesIn(storage)).toEqual(["u"]);
  });
});

it("a new object has the present tables from its first write on, and reading creates none", async () => {
  await withStorage((storage) => {
    const schema = new Schema(storage, V2, [TO_2]);
    expect(schema.rows("SELECT b FROM t")).toEqual([]);
    expect(tablesIn(storage)).toEqual([]);
    schema.write("INSERT INTO t (a) VALUES ('eight')");
    expect(schema.rows("SELECT a, b FROM t")).toEqual([{ a: "eight", b: 7 }]);
  });
  const home = env.HOME.getByName(`tenant:${newTurnAddress().home}`);
  expect(await home.retrieve("a")).toBeNull();
  await runInDurableObject(home, (_, { storage }) => expect(tablesIn(storage)).toEqual([]));
});
