import { copyFileSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, expect, it } from "vitest";
import { withdrawUnsure } from "../../cli/backup/backup-files.ts";
import { uniqueKeyOf } from "../../cli/serve/workerd.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { cleanUp } from "./serve-support.ts";
import { serveFolder } from "./served-folder.ts";

/** A directory of files is copied before their bytes and after. The backup has the files that both copies list. */

let vllm: SimulatorServer;
let folder: string;
/** A file directory's database, made by a server. */
let made: string;
beforeAll(async () => {
  vllm = await serveSimulator();
  folder = mkdtempSync(join(tmpdir(), "backup-files-"));
  const data = join(folder, "data");
  const server = await serveFolder(data, vllm);
  await server.openai.files.create({ file: new File(["x"], "x.txt"), purpose: "assistants" });
  await server.stop("SIGTERM");
  const directories = join(data, uniqueKeyOf("FileDirectory"));
  const [name = ""] = readdirSync(directories).filter((each) => /^[0-9a-f]{64}\.sqlite$/.test(each));
  made = join(folder, "made.sqlite");
  copyFileSync(join(directories, name), made);
});
afterAll(async () => {
  cleanUp();
  await vllm.close();
  rmSync(folder, { recursive: true, force: true });
});

interface Rows {
  files?: string[];
  /** Parts of uploads: the key, the number, and 1 for a complete one. */
  parts?: [string, number, number][];
  removed?: string[];
  uses?: [string, string][];
  stores?: string[];
}

let copies = 0;
/** Makes a copy of the directory with these rows. */
function copyWith({ files = [], parts = [], removed = [], uses = [], stores = [] }: Rows) {
  copies += 1;
  const path = join(folder, `${copies}.sqlite`);
  copyFileSync(made, path);
  using database = new DatabaseSync(path);
  const run = (statement: string, ...values: (string | number)[]) => database.prepare(statement).run(...values);
  for (const table of ["file", "part", "removed", "used_by", "vector_store"]) run(`DELETE FROM ${table}`);
  run("UPDATE _cf_METADATA SET value = 99 WHERE key = 1");
  for (const key of files) {
    run("INSERT INTO file (key, owner, purpose, bytes, created_at, body) VALUES (?, 'k', 'batch', 10, 1, '{}')", key);
  }
  for (const part of parts) {
    run("INSERT INTO part (key, part, owner, bytes, touched_at, is_whole) VALUES (?, ?, 'k', 5, 1, ?)", ...part);
  }
  for (const key of removed) run("INSERT INTO removed (key, at, tries) VALUES (?, 5, 2)", key);
  for (const use of uses) run("INSERT INTO used_by (key, store) VALUES (?, ?)", ...use);
  for (const store of stores) run("INSERT INTO vector_store (id) VALUES (?)", store);
  return path;
}

function read(path: string, select: string) {
  using database = new DatabaseSync(path);
  return database
    .prepare(select)
    .all()
    .map((row) => Object.values(row).join());
}

it("a file that was added or deleted meanwhile is removed after a restore", () => {
  const before = copyWith({
    files: ["stays", "goes", "went"],
    uses: [["goes", "vs_1"]],
    removed: ["went before"],
    stores: ["vs_1"],
  });
  const after = copyWith({ files: ["stays", "comes"], removed: ["went"], stores: ["vs_2"] });
  expect(withdrawUnsure(after, before, 1_000)).toBe(true);
  expect(read(after, "SELECT key FROM file")).toEqual(["stays"]);
  expect(read(after, "SELECT key, at FROM removed ORDER BY key")).toEqual([
    "comes,1000",
    "goes,1000",
    "went,5",
    "went before,1000",
  ]);
  // The file's users are told, and at once.
  expect(read(after, "SELECT key, store FROM used_by")).toEqual(["goes,vs_1"]);
  expect(read(after, "SELECT value FROM _cf_METADATA WHERE key = 1")).toEqual(["1000000000"]);
  expect(read(after, "SELECT id FROM vector_store ORDER BY id")).toEqual(["vs_1", "vs_2"]);
  expect(read(after, "SELECT files, bytes FROM total WHERE files > 0")).toEqual(["1,10"]);
});

it("a part that became complete meanwhile is given up", () => {
  const before = copyWith({
    parts: [
      ["u", 1, 1],
      ["u", 2, 0],
    ],
  });
  const after = copyWith({
    parts: [
      ["u", 1, 1],
      ["u", 2, 1],
      ["u", 3, 1],
      ["u", 4, 0],
    ],
  });
  expect(withdrawUnsure(after, before)).toBe(true);
  expect(read(after, "SELECT part, is_whole FROM part")).toEqual(["1,1", "2,2", "3,2", "4,0"]);
});

it("a new directory lists no files, and one without writes stays unchanged", () => {
  const rows: Rows = { files: ["a"], parts: [["u", 1, 1]], removed: ["b"], uses: [["a", "vs_1"]], stores: ["vs_1"] };
  const [same, other] = [copyWith(rows), copyWith(rows)];
  expect(withdrawUnsure(same, other)).toBe(false);
  expect(read(same, "SELECT value FROM _cf_METADATA WHERE key = 1")).toEqual(["99"]);
  expect(withdrawUnsure(other, undefined, 1_000)).toBe(true);
  expect(read(other, "SELECT key FROM file")).toEqual([]);
  expect(read(other, "SELECT key FROM removed")).toEqual(["a", "b"]);
});
