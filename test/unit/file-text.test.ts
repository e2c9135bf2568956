import { env, runInDurableObject } from "cloudflare:test";
import { UnreadableFile } from "@responses-edge/file-text";
import { fileId, newFileKey } from "@responses-edge/responses-api/ids";
import { describe, expect, it } from "vitest";
import { loadConfig } from "../../src/config/index.ts";
import { withObjects } from "../../src/store/objects/objects.ts";
import { FileClient } from "../../src/store/tenant/files/file-client.ts";

const config = loadConfig(env);
let tenants = 0;

/** The files of a tenant that has none yet. */
function newTenant() {
  tenants += 1;
  const tenant = `text-${tenants}`;
  return { tenant, files: new FileClient(withObjects(env), tenant) };
}

async function keep({ tenant, files }: ReturnType<typeof newTenant>, bytes: Uint8Array, filename = "a.txt") {
  const none = { files: null, bytes: null };
  const limits = { tenant: none, key: none };
  using file = await files.receive("key", { tenant, config, limits, maxBytes: 64 * 1024 * 1024, field: "file" });
  for (let at = 0; at < bytes.length; at += 100_000) await file.write(bytes.subarray(at, at + 100_000));
  const about = { filename, mimeType: null, purpose: "assistants" as const, createdAt: 1, expiresAt: null };
  return fileId((await files.commit(file, about, limits)).key);
}

const textOf = async (files: FileClient, id: string) => Array.fromAsync(files.text(id));
const bytes = (text: string) => new TextEncoder().encode(text);
const objectOf = (tenant: string, id: string) => env.FILE_BYTES.getByName(`${tenant}:${id.slice("file-".length)}`);

describe("the text of a file", () => {
  it("is its content, page by page, and is made once", async () => {
    const tenant = newTenant();
    const id = await keep(tenant, bytes("Grüße\n\u{1f9a7}"));
    expect(await textOf(tenant.files, id)).toEqual([{ page: null, text: "Grüße\n\u{1f9a7}" }]);
    await runInDurableObject(objectOf(tenant.tenant, id), (_, { storage: { sql } }) => {
      sql.exec("DELETE FROM piece WHERE seq > 0");
      sql.exec("UPDATE piece SET bytes = x'00'");
    });
    expect(await textOf(tenant.files, id)).toEqual([{ page: null, text: "Grüße\n\u{1f9a7}" }]);
  });

  it("may be longer than a row, and than one read of a stream", async () => {
    const tenant = newTenant();
    const text = Array.from({ length: 150_000 }, (_, line) => `line ${line} 日本`).join("\n");
    const id = await keep(tenant, bytes(text));
    const pages = await textOf(tenant.files, id);
    expect(pages).toHaveLength(1);
    expect(pages[0]?.text === text).toBe(true);
    await runInDurableObject(objectOf(tenant.tenant, id), (_, { storage: { sql } }) => {
      const longest = sql.exec<{ most: number }>("SELECT MAX(length(cell)) AS most FROM page").one().most;
      expect(longest).toBeLessThan(2_000_000);
    });
  });

  it("is made once for simultaneous requests", async () => {
    const tenant = newTenant();
    const id = await keep(tenant, bytes("x".repeat(500_000)));
    const all = await Promise.all(Array.from({ length: 5 }, () => textOf(tenant.files, id)));
    expect(new Set(all.map((pages) => pages[0]?.text.length))).toEqual(new Set([500_000]));
    await runInDurableObject(objectOf(tenant.tenant, id), (_, { storage: { sql } }) => {
      expect(sql.exec("SELECT COUNT(*) AS count FROM outcome").one()).toEqual({ count: 1 });
    });
  });

  it("is made again if its maker died", async () => {
    const tenant = newTenant();
    const id = await keep(tenant, bytes("whole"));
    await runInDurableObject(objectOf(tenant.tenant, id), (_, { storage: { sql } }) => {
      sql.exec("INSERT INTO page (seq, number, begins, cell) VALUES (0, NULL, 1, 'hal'), (1, NULL, 1, 'x')");
    });
    expect(await textOf(tenant.files, id)).toEqual([{ page: null, text: "whole" }]);
  });

  it("of an unreadable file is an UnreadableFile, each time", async () => {
    const tenant = newTenant();
    const id = await keep(tenant, new Uint8Array([0x89, 0x50, 0x4e, 0x47]));
    for (let time = 0; time < 2; time += 1) {
      const failed = await textOf(tenant.files, id).catch((error: unknown) => error);
      expect(failed).toBeInstanceOf(UnreadableFile);
      expect(failed).toMatchObject({ code: "unsupported_file" });
    }
  });

  it("of a file beyond the limit is refused, without reading the file", async () => {
    const tenant = newTenant();
    const id = await keep(tenant, new Uint8Array(33 * 1024 * 1024));
    await expect(textOf(tenant.files, id)).rejects.toMatchObject({ code: "too_large" });
  });

  it("of another tenant's, and of a deleted file, is a 404", async () => {
    const tenant = newTenant();
    const id = await keep(tenant, bytes("secret"));
    await expect(textOf(newTenant().files, id)).rejects.toMatchObject({ status: 404, code: "file_not_found" });
    expect(await textOf(tenant.files, id)).toHaveLength(1);
    await tenant.files.remove(id);
    await expect(textOf(tenant.files, id)).rejects.toMatchObject({ status: 404, code: "file_not_found" });
  });

  it("is not stored if the file is erased meanwhile", async () => {
    const tenant = newTenant();
    const id = await keep(tenant, bytes("x ".repeat(3_000_000)));
    const asked = textOf(tenant.files, id).catch(() => {});
    await runInDurableObject(objectOf(tenant.tenant, id), (object) => object.erase());
    await asked;
    await runInDurableObject(objectOf(tenant.tenant, id), (_, { storage: { sql } }) => {
      expect(sql.exec("SELECT name FROM sqlite_schema WHERE name = 'page'").toArray()).toEqual([]);
    });
  });
});

describe("a file whose process dies while it is stored", () => {
  const none = { files: null, bytes: null };
  const limits = { tenant: none, key: none };
  const about = { filename: "a.txt", mimeType: null, purpose: "batch_output" as const, createdAt: 1, expiresAt: null };
  const contentOf = async (files: FileClient, id: string) => new Response((await files.content(id)).body).text();

  it("is begun again under its key, and exists once", async () => {
    const { tenant, files } = newTenant();
    const receiver = { tenant, config, limits, maxBytes: 1_000, field: "file" };
    const key = newFileKey();
    for (const text of ["the first half", "the whole"]) {
      using part = await files.receiveAs(key, "key", receiver);
      await part?.write(bytes(text));
      if (part && text === "the whole") await files.commit(part, about, limits);
    }
    expect(await files.receiveAs(key, "key", receiver)).toBeNull();
    expect(await contentOf(files, fileId(key))).toBe("the whole");
    expect((await files.list({ limit: 10, order: "asc" })).data).toHaveLength(1);
  });

  it("is the same file when a step is repeated because its answer was lost", async () => {
    const { tenant, files } = newTenant();
    const directory = withObjects(env).FILE_DIRECTORIES.getByName(tenant);
    const upload = await files.createUpload(
      {
        bytes: 4,
        filename: "a",
        mimeType: "text/plain",
        about: { purpose: "assistants" },
        createdAt: 0,
        expiresAt: 9e9,
      },
      "key",
    );
    const { key } = upload;
    const told = <T>(value: T) => ({ ok: true, value });
    expect(await directory.createUpload(upload, "key")).toEqual(told(true));
    using part = await files.receivePart(upload, "key", { tenant, config, limits, maxBytes: 9, field: "data" });
    await part.write(bytes("four"));
    const whole = { key, part: part.part, bytes: 4 };
    await part.end();
    const record = { ...about, key, bytes: 4, parts: [part.part], at: "rows" as const };
    for (const step of [
      () => directory.touch(whole, limits),
      () => directory.finishPart(whole),
      () => directory.completeUpload(record, limits),
    ]) {
      expect(await step()).toEqual(told(true));
      expect(await step()).toEqual(told(true));
    }
    expect(await directory.completeUpload({ ...record, parts: [] }, limits)).toEqual(told(false));
    expect(await contentOf(files, fileId(key))).toBe("four");
    expect((await files.list({ limit: 10, order: "asc" })).data).toHaveLength(1);
  });
});
