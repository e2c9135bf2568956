import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, it } from "vitest";
import { RUN_TABLES, RunRegister } from "../../src/store/deployment/board.ts";
import { Schema } from "../../src/store/objects/schema.ts";

/** The board's register of live runs. */

let boards = 0;

/** Uses the register of a new board. */
function withRegister<T>(use: (open: () => RunRegister, sql: SqlStorage) => T, maxRuns?: number): Promise<T> {
  boards += 1;
  return runInDurableObject(env.BOARD.getByName(`register-${boards}`), (_, { storage }) =>
    use(() => new RunRegister(new Schema(storage, RUN_TABLES), maxRuns), storage.sql),
  );
}

const idsOf = (register: RunRegister) => register.list({ limit: 100 }).map(({ id }) => id);

describe("the register of runs", () => {
  it("creates no table when it is read", async () => {
    const tables = await withRegister((open, sql) => {
      expect(open().list({ limit: 10 })).toEqual([]);
      expect(open().get("resp_1")).toBeNull();
      open().remove(["resp_1"]);
      return sql.exec("SELECT name FROM sqlite_schema WHERE name NOT LIKE '\\_cf\\_%' ESCAPE '\\'").toArray();
    });
    expect(tables).toEqual([]);
  });

  it("has each run once, by its id, also after a resumption", async () => {
    await withRegister((open) => {
      const register = open();
      for (const id of ["resp_b", "resp_a", "resp_b"]) register.add({ id, tenant: `of-${id}` }, 1);
      expect(open().list({ limit: 10 })).toEqual([
        { id: "resp_a", tenant: "of-resp_a" },
        { id: "resp_b", tenant: "of-resp_b" },
      ]);
      expect(open().list({ limit: 10, tenant: "of-resp_b" })).toEqual([{ id: "resp_b", tenant: "of-resp_b" }]);
      expect(open().list({ limit: 10, after: "resp_a" })).toHaveLength(1);
      open().remove(["resp_a", "resp_unknown"]);
      expect(idsOf(open())).toEqual(["resp_b"]);
    });
  });

  it("drops the oldest when there are too many, and counts again after some have ended", async () => {
    await withRegister((open) => {
      const register = open();
      for (let run = 0; run < 3; run += 1) register.add({ id: `resp_${run}`, tenant: "t" }, 10 - run);
      register.remove(["resp_1"]);
      register.add({ id: "resp_3", tenant: "t" }, 20);
      expect(idsOf(register)).toEqual(["resp_0", "resp_2", "resp_3"]);
      register.add({ id: "resp_4", tenant: "t" }, 30);
      // A thousand are dropped together, or the maximum number if this is lower.
      expect(idsOf(register)).toEqual(["resp_4"]);
    }, 3);
  });

  it("writes one row for a run, and one for its end", async () => {
    const rows = await withRegister((open, sql) => {
      const register = open();
      register.add({ id: "resp_0", tenant: "t" }, 1);
      const exec = sql.exec.bind(sql);
      const cursors: { rowsWritten: number }[] = [];
      sql.exec = ((...given: Parameters<typeof exec>) => {
        const cursor = exec(...given);
        cursors.push(cursor);
        return cursor;
      }) as typeof exec;
      register.add({ id: "resp_1", tenant: "t" }, 2);
      register.remove(["resp_1"]);
      sql.exec = exec;
      return cursors.reduce((sum, { rowsWritten }) => sum + rowsWritten, 0);
    });
    expect(rows).toBe(2);
  });
});
