import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { expect, it } from "vitest";
import { Schema } from "../../src/store/objects/schema.ts";
import { ContainerTable, type NewContainer } from "../../src/store/tenant/files/container-table.ts";
import { FILE_DIRECTORY_TABLES } from "../../src/store/tenant/files/directory-tables.ts";
import { type FileRecord, FileTable } from "../../src/store/tenant/files/file-table.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

const made: NewContainer = { id: "c1", name: "mine", minutes: 20, memory: null };

const fileNamed = (key: string, more: Partial<FileRecord> = {}): FileRecord => ({
  ...{ key, filename: `${key}.txt`, mimeType: null, purpose: "user_data", bytes: 3, parts: [0], at: "rows" },
  ...{ createdAt: 0, expiresAt: null },
  ...more,
});

async function inTables(body: (containers: ContainerTable, files: FileTable, storage: DurableObjectStorage) => void) {
  await runInDurableObject(env.QUOTAS.getByName(crypto.randomUUID()), (_, { storage }) => {
    const schema = new Schema(storage, FILE_DIRECTORY_TABLES);
    const files = new FileTable(schema);
    body(new ContainerTable(schema, files), files, storage);
  });
}

/** The paths of a container's files that the tool server has to be told of. */
function pendingIn(containers: ContainerTable, now: number) {
  const use = containers.use("c1", now);
  return use.kind === "ready" ? use.pending.map(({ path, isGone }) => (isGone ? `-${path}` : path)) : use.kind;
}

it("a container expires when it was idle for its minutes, is known for a day, and is then forgotten", async () => {
  await inTables((containers) => {
    expect(containers.use("c1", 0)).toEqual({ kind: "missing" });
    containers.create(made, 1, 0);
    expect(containers.use("c1", 19 * MINUTE_MS)).toMatchObject({ kind: "ready", isOpen: false, minutes: 20 });
    containers.settle("c1", []);
    expect(containers.use("c1", 38 * MINUTE_MS)).toMatchObject({ kind: "ready", isOpen: true });
    containers.touch("c1", 40 * MINUTE_MS);
    expect(containers.find("c1", 60 * MINUTE_MS - 1)).toMatchObject({ isExpired: false, activeAt: 2_400 });
    expect(containers.find("c1", 60 * MINUTE_MS)).toMatchObject({ isExpired: true });
    expect(containers.use("c1", 60 * MINUTE_MS)).toEqual({ kind: "expired" });
    // Neither the end of a use nor a repeated creation wakes an expired one.
    containers.touch("c1", 61 * MINUTE_MS);
    containers.create(made, 1, 61 * MINUTE_MS);
    expect(containers.use("c1", 61 * MINUTE_MS)).toEqual({ kind: "expired" });
    const due = 60 * MINUTE_MS + DAY_MS;
    expect(containers.nextDue()).toBe(due);
    containers.sweep(due - 1);
    expect(containers.find("c1", due - 1)).not.toBeNull();
    containers.sweep(due);
    expect(containers.find("c1", due)).toBeNull();
  });
});

it("a container that the tool server has lost is expired at once", async () => {
  await inTables((containers) => {
    containers.create(made, 1, 0);
    containers.lose("c1");
    expect(containers.use("c1", 0)).toEqual({ kind: "expired" });
    expect(containers.list({ limit: 1, order: "asc" }, 0)?.data).toMatchObject([{ id: "c1", isExpired: true }]);
  });
});

it("a tenant has as many containers as it may, and expired ones do not count", async () => {
  await inTables((containers) => {
    expect(containers.create(made, 1, 0)).toBe(true);
    expect(containers.create({ ...made, id: "c2" }, 1, 0)).toBe(false);
    expect(containers.create({ ...made, id: "c2" }, 1, 20 * MINUTE_MS)).toBe(true);
  });
});

it("the tool server is told of a file once, and of its removal only if it has the file", async () => {
  await inTables((containers, files) => {
    containers.create(made, 1, 0);
    for (const key of ["a", "b", "c"]) files.add(fileNamed(key), "key");
    const given = ["a", "b"].map((key) => ({ key, id: `file-${key}`, filename: "same.txt" }));
    containers.give("c1", given, 0);
    expect(pendingIn(containers, 0)).toEqual(["same.txt", "file-b-same.txt"]);
    const use = containers.use("c1", 0);
    containers.settle("c1", use.kind === "ready" ? use.pending : []);
    // The next turn gives the same files, and one more.
    containers.give("c1", [...given, { key: "c", id: "file-c", filename: "c.txt" }], 0);
    expect(pendingIn(containers, 0)).toEqual(["c.txt"]);
    for (const key of ["a", "c"]) expect(containers.removeFile("c1", key, 0)).toBe(true);
    expect(pendingIn(containers, 0)).toEqual(["-same.txt"]);
    expect(containers.files("c1", { limit: 9, order: "asc" }, 0)?.data.map(({ path }) => path)).toEqual([
      "file-b-same.txt",
    ]);
    expect(containers.file("c1", "a", 0)).toBeNull();
    // A given file is only taken out of the container.
    expect(files.find("a", 0)).not.toBeNull();
  });
});

it("a container's own files go with it, and last as long as it is used", async () => {
  await inTables((containers, files) => {
    containers.create({ ...made, minutes: 1_440 }, 1, 0);
    const container = { id: "c1", path: "out/a.txt" };
    for (const key of ["a1", "a2"]) {
      files.add(fileNamed(key, { expiresAt: 86_400, container }), "key");
      containers.put("c1", { key, path: container.path, source: "assistant" }, 0);
    }
    files.add(fileNamed("b"), "key");
    containers.give("c1", [{ key: "b", id: "file-b", filename: "b.txt" }], 0);
    containers.use("c1", DAY_MS * 0.75);
    expect([files.find("a1", DAY_MS), files.find("a2", DAY_MS)]).toMatchObject([null, { key: "a2" }]);
    // The earlier file of the path can be read as long as it is kept, and is not listed.
    expect(containers.file("c1", "a1", 0)).toMatchObject({ path: "out/a.txt", source: "assistant" });
    const listed = containers.files("c1", { limit: 9, order: "desc" }, 0)?.data;
    expect(listed?.map(({ record, source }) => [record.key, source])).toEqual([
      ["b", "user"],
      ["a2", "assistant"],
    ]);
    expect(containers.remove("c1", 0)).toBe(true);
    expect([containers.find("c1", 0), files.find("a2", 0)]).toEqual([null, null]);
    expect(files.find("b", 0)).not.toBeNull();
  });
});
