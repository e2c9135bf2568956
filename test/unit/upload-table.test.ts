import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { expect, it } from "vitest";
import { Schema } from "../../src/store/objects/schema.ts";
import { FILE_DIRECTORY_TABLES } from "../../src/store/tenant/files/directory-tables.ts";
import { FileTable } from "../../src/store/tenant/files/file-table.ts";
import { type UploadRecord, UploadTable } from "../../src/store/tenant/files/upload-table.ts";

const LIMITS = { tenant: { files: null, bytes: null }, key: { files: null, bytes: null } };
const HOUR_MS = 3_600_000;

const pending: UploadRecord = {
  key: "u1",
  bytes: 10,
  filename: "a.txt",
  mimeType: "text/plain",
  about: { purpose: "assistants" },
  createdAt: 0,
  expiresAt: 3_600,
  status: "pending",
};

async function inTables(body: (uploads: UploadTable, files: FileTable) => void) {
  await runInDurableObject(env.QUOTAS.getByName(crypto.randomUUID()), (_, { storage }) => {
    const schema = new Schema(storage, FILE_DIRECTORY_TABLES);
    const files = new FileTable(schema);
    body(new UploadTable(schema, files), files);
  });
}

it("an incomplete upload expires after its hour, and its parts are removed", async () => {
  await inTables((uploads, files) => {
    uploads.create(pending, "key");
    const part = uploads.beginPart("u1", "key", LIMITS, 1_000) ?? 0;
    files.finish({ key: "u1", part, bytes: 10 });
    expect(uploads.nextDue()).toBe(HOUR_MS);
    uploads.sweep(HOUR_MS - 1);
    expect(uploads.find("u1", HOUR_MS - 1)).toEqual(pending);
    // The upload has expired before the alarm has fired.
    expect(uploads.find("u1", HOUR_MS)?.status).toBe("expired");
    uploads.sweep(HOUR_MS);
    expect(files.parts("u1")).toEqual(new Map());
    expect(files.toRemove(10, HOUR_MS)).toEqual([{ key: "u1", tries: 0, kept: null }]);
    uploads.sweep(26 * HOUR_MS);
    expect(uploads.find("u1", 26 * HOUR_MS)).toBeNull();
  });
});

it("a part whose sender is silent is given up: its number is not reused, and it is not in a file", async () => {
  await inTables((uploads, files) => {
    uploads.create(pending, "key");
    const part = uploads.beginPart("u1", "key", LIMITS, 0) ?? 0;
    files.touch({ key: "u1", part, bytes: 5 }, LIMITS, 0);
    files.sweep(900_000);
    expect(files.finish({ key: "u1", part, bytes: 10 })).toBe(false);
    expect(uploads.beginPart("u1", "key", LIMITS, 900_000)).toBe(part + 1);
    // The part's bytes count no more.
    const most = { ...LIMITS, key: { files: null, bytes: 0 } };
    files.check(most, "key", { files: 0, bytes: 0 });
  });
});
