import { createHash, randomBytes } from "node:crypto";
import { connect } from "node:net";
import { toFile } from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { uniqueKeyOf } from "../../cli/serve/workerd.ts";
import { objectId } from "../workerd/storage.ts";
import { expectError } from "./expectations.ts";
import { ask, startWithKeys } from "./key-support.ts";
import { eventually, type Gateway } from "./support.ts";

const sha256 = (text: string | Uint8Array) => createHash("sha256").update(text).digest("hex");
const md5 = (bytes: Uint8Array) => createHash("md5").update(bytes).digest("hex");

const KEYS = { one: "the-key-of-one", other: "the-key-of-another" };
const MAX_FILE_BYTES = 8 * 1024 * 1024;

let gateway: Gateway;
beforeAll(async () => {
  const keys = Object.entries(KEYS).map(([tenant, key]) => `${tenant}:${sha256(key)}`);
  gateway = await startWithKeys({ API_KEYS: keys.join(","), MAX_FILE_BYTES: String(MAX_FILE_BYTES) });
});
afterAll(() => gateway.close());

const client = (key = KEYS.one) => gateway.client({ apiKey: key });
const call = (method: string, path: string, body?: BodyInit, headers: Record<string, string> = {}, key = KEYS.one) =>
  gateway.fetch(gateway.url + path, {
    method,
    headers: { authorization: `Bearer ${key}`, ...headers },
    ...(body !== undefined && { body }),
  });

const upload = (bytes: Uint8Array<ArrayBuffer> | string, name = "a.txt", key = KEYS.one) => {
  return client(key).files.create({ file: new File([bytes], name), purpose: "assistants" });
};

const form = (fields: Record<string, string | File>) => {
  const made = new FormData();
  for (const [name, value] of Object.entries(fields)) made.append(name, value);
  return made;
};

const bytesOf = (name: string) => objectId(`one:${name.slice("file-".length)}`, uniqueKeyOf("FileBytes"));
const tablesIn = (id: string) =>
  gateway.fileBytes.exec(bytesOf(id), "SELECT name FROM sqlite_schema WHERE name = 'piece'");

/** Waits until the bytes of a removed file are deleted. (The file's object must not be read meanwhile.) */
async function gone(id: string, tenant = "one"): Promise<void> {
  const directory = objectId(tenant, uniqueKeyOf("FileDirectory"));
  const select = "SELECT key FROM removed WHERE key = ?";
  await eventually(() => gateway.fileDirectories.exec(directory, select, id.slice("file-".length)).length === 0);
}

describe.concurrent("a file", () => {
  it("is stored unchanged, and shown in OpenAI's form", async () => {
    const before = Math.floor(Date.now() / 1000);
    const file = await client().files.create({
      file: await toFile(Buffer.from("Hello!"), "hello.txt"),
      purpose: "user_data",
    });
    expect(file).toEqual({
      id: expect.stringMatching(/^file-\w{22}$/),
      object: "file",
      bytes: 6,
      created_at: expect.any(Number),
      filename: "hello.txt",
      purpose: "user_data",
      status: "processed",
    });
    expect(file.created_at).toBeGreaterThanOrEqual(before);
    expect(await client().files.retrieve(file.id)).toEqual(file);
    expect(await client().files.waitForProcessing(file.id)).toEqual(file);
    const content = await client().files.content(file.id);
    expect(content.headers.get("content-length")).toBe("6");
    expect(content.headers.get("content-disposition")).toBe("attachment; filename*=utf-8''hello.txt");
    expect(await content.text()).toBe("Hello!");
  });

  it.each([0, 1, 64 * 1024, 1024 * 1024 - 1, 1024 * 1024, 1024 * 1024 + 1, 3_500_000])(
    "has all of its %s bytes",
    async (length) => {
      const bytes = new Uint8Array(randomBytes(length));
      const { id, bytes: told } = await upload(bytes);
      expect(told).toBe(length);
      const content = new Uint8Array(await (await client().files.content(id)).arrayBuffer());
      expect(content.length).toBe(length);
      expect(sha256(content)).toBe(sha256(bytes));
    },
  );

  it("has rows of at most 1 MiB", async () => {
    const { id } = await upload(new Uint8Array(randomBytes(2_500_000)));
    const rows = gateway.fileBytes.exec(bytesOf(id), "SELECT length(bytes) AS length FROM piece ORDER BY seq");
    expect(rows.map(({ length }) => length)).toEqual([1024 * 1024, 1024 * 1024, 2_500_000 - 2 * 1024 * 1024]);
  });

  it("may be sent before or after its fields", async () => {
    const file = new File(["x"], "x.txt");
    for (const body of [form({ purpose: "evals", file }), form({ file, purpose: "evals" })]) {
      expect(await (await call("POST", "/v1/files", body)).json()).toMatchObject({ purpose: "evals", bytes: 1 });
    }
  });

  it("expires at the requested time; a batch's after 30 days", async () => {
    const file = new File(["x"], "x.jsonl");
    const expires_after = { anchor: "created_at", seconds: 3600 } as const;
    const soon = await client().files.create({ file, purpose: "vision", expires_after });
    expect(soon.expires_at).toBe(soon.created_at + 3600);
    const batch = await client().files.create({ file, purpose: "batch" });
    expect(batch.expires_at).toBe(batch.created_at + 2_592_000);
  });

  it("is deleted at once, and its bytes soon after", async () => {
    const { id } = await upload(new Uint8Array(randomBytes(1_500_000)));
    expect(tablesIn(id)).toHaveLength(1);
    expect(await client().files.delete(id)).toEqual({ id, object: "file", deleted: true });
    for (const path of [`/v1/files/${id}`, `/v1/files/${id}/content`]) {
      await expectError(await call("GET", path), { status: 404, code: "file_not_found", param: "file_id" });
    }
    await expectError(await call("DELETE", `/v1/files/${id}`), { status: 404, code: "file_not_found" });
    await gone(id);
    expect(tablesIn(id)).toEqual([]);
  });

  it.each([
    ["naïve 日本.txt", "naïve 日本.txt"],
    ["C:\\documents\\a.pdf", "a.pdf"],
    ["../../etc/passwd", "passwd"],
    ['a"b.txt', 'a"b.txt'],
  ])("named %s has the name %s", async (name, kept) => {
    expect((await upload("x", name)).filename).toBe(kept);
  });
});

describe("the list of files", () => {
  it("has pages, newest first or oldest first, and those of one purpose", async () => {
    const mine = client(KEYS.other);
    const ids: string[] = [];
    for (let index = 0; index < 5; index += 1) ids.push((await upload("x", `${index}.txt`, KEYS.other)).id);
    const vision = await mine.files.create({ file: new File(["x"], "x.png"), purpose: "vision" });
    const all: string[] = [];
    for await (const { id } of mine.files.list({ limit: 2 })) all.push(id);
    expect(all).toEqual([vision.id, ...ids.toReversed()]);
    const page = await mine.files.list({ order: "asc", limit: 2, after: ids[1] ?? "" });
    expect(page.data.map(({ id }) => id)).toEqual(ids.slice(2, 4));
    expect(page.has_more).toBe(true);
    expect((await mine.files.list({ purpose: "vision" })).data).toEqual([vision]);
    expect((await mine.files.list({ purpose: "fine-tune-results" })).data).toEqual([]);
    for (const id of [...ids, vision.id]) await mine.files.delete(id);
    expect(await (await call("GET", "/v1/files", undefined, {}, KEYS.other)).json()).toEqual({
      object: "list",
      data: [],
      first_id: null,
      last_id: null,
      has_more: false,
    });
  });

  it.each([
    ["limit=0", "limit"],
    ["limit=10001", "limit"],
    ["order=up", "order"],
    ["after=file-none", "after"],
  ])("refuses %s", async (query, param) => {
    await expectError(await call("GET", `/v1/files?${query}`), { status: 400, param });
  });
});

describe.concurrent("another tenant's file", () => {
  it("does not exist for any endpoint", async () => {
    const { id } = await upload("secret");
    const unknown = `file-${"0".repeat(22)}`;
    for (const [method, suffix] of [
      ["GET", ""],
      ["GET", "/content"],
      ["DELETE", ""],
    ] as const) {
      const [theirs, none] = await Promise.all(
        [id, unknown].map(async (each) => {
          const answer = await call(method, `/v1/files/${each}${suffix}`, undefined, {}, KEYS.other);
          return [answer.status, (await answer.text()).replaceAll(each, "ID")];
        }),
      );
      expect(theirs?.[0]).toBe(404);
      expect(theirs).toEqual(none);
    }
    await expectError(await call("GET", `/v1/files?after=${id}`, undefined, {}, KEYS.other), {
      status: 400,
      param: "after",
    });
    expect(await (await client().files.content(id)).text()).toBe("secret");
  });

  it("that never existed opens no object", async () => {
    const before = gateway.fileBytes.ids().length;
    const unknown = `file-${"1".repeat(22)}`;
    await expectError(await call("GET", `/v1/files/${unknown}/content`), { status: 404, code: "file_not_found" });
    expect(gateway.fileBytes.ids()).not.toContain(bytesOf(unknown));
    expect(before).toBeGreaterThan(0);
  });
});

describe.concurrent("a form without a valid file", () => {
  const file = new File(["x"], "x.txt");
  it.each([
    ["no file", form({ purpose: "assistants" }), { param: "file", code: "missing_required_parameter" }],
    ["no purpose", form({ file }), { param: "purpose" }],
    ["a file that is a field", form({ file: "x", purpose: "assistants" }), { param: "file", code: "invalid_type" }],
    ["a purpose that nobody knows", form({ file, purpose: "fun" }), { param: "purpose" }],
    [
      "half an expiry",
      form({ file, purpose: "vision", "expires_after[seconds]": "3600" }),
      { param: "expires_after.anchor" },
    ],
    [
      "an expiry that is too soon",
      form({ file, purpose: "vision", "expires_after[anchor]": "created_at", "expires_after[seconds]": "3599" }),
      { param: "expires_after.seconds" },
    ],
    ["a field that is too long", form({ file, purpose: "x".repeat(2000) }), { param: "purpose" }],
    ["a name that is too long", form({ file: new File(["x"], "x".repeat(256)), purpose: "vision" }), { param: "file" }],
  ])("with %s is a 400 that names it", async (_, body, wanted) => {
    await expectError(await call("POST", "/v1/files", body), { status: 400, ...wanted });
  });

  it("with two files is a 400", async () => {
    const body = form({ purpose: "assistants", file });
    body.append("file", file);
    await expectError(await call("POST", "/v1/files", body), { status: 400, param: "file" });
  });

  it("that is JSON, or compressed, is a 415", async () => {
    const answer = await call("POST", "/v1/files", "{}", { "content-type": "application/json" });
    await expectError(answer, { status: 415, code: "unsupported_media_type" });
    const headers = { "content-type": "multipart/form-data; boundary=b", "content-encoding": "gzip" };
    await expectError(await call("POST", "/v1/files", "--b--", headers), { status: 415 });
  });

  it.each([
    ["ends too early", `--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nabc`],
    ["has no boundary in it", "abc"],
    ["has huge headers", `--b\r\nX: ${"x".repeat(20_000)}\r\n\r\n\r\n--b--`],
    ["is empty", ""],
  ])("%s: a 400", async (_, body) => {
    const headers = { "content-type": "multipart/form-data; boundary=b" };
    await expectError(await call("POST", "/v1/files", body, headers), { status: 400, code: "invalid_form" });
  });

  it("that is too large is a 413, also without an announced length", async () => {
    const bytes = new Uint8Array(MAX_FILE_BYTES + 1);
    const wanted = { status: 413, param: "file", code: "file_too_large" };
    await expectError(
      await call("POST", "/v1/files", form({ file: new File([bytes], "x"), purpose: "vision" })),
      wanted,
    );
    const written = new Response(form({ purpose: "vision", file: new File([bytes], "x") }));
    const answer = await gateway.fetch(`${gateway.url}/v1/files`, {
      method: "POST",
      headers: { authorization: `Bearer ${KEYS.one}`, "content-type": written.headers.get("content-type") ?? "" },
      body: written.body,
      duplex: "half",
    } as RequestInit);
    await expectError(answer, wanted);
  });

  it("leaves nothing behind", async () => {
    const directory = objectId("one", uniqueKeyOf("FileDirectory"));
    const left = () =>
      gateway.fileDirectories.exec(directory, "SELECT key FROM part UNION ALL SELECT key FROM removed");
    const body = form({ file: new File([new Uint8Array(2_000_000)], "x.txt"), purpose: "fun" });
    await expectError(await call("POST", "/v1/files", body), { status: 400, param: "purpose" });
    await eventually(() => left().length === 0);
  });
});

it("of a client that disconnects in the middle leaves nothing behind", async () => {
  const directory = objectId("one", uniqueKeyOf("FileDirectory"));
  const rows = (table: string) => gateway.fileDirectories.exec(directory, `SELECT key FROM ${table}`);
  const files = rows("file").length;
  const { port } = new URL(gateway.url);
  const socket = connect(Number(port), "127.0.0.1");
  socket.write(
    `POST /v1/files HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\nauthorization: Bearer ${KEYS.one}\r\n` +
      `content-type: multipart/form-data; boundary=b\r\ncontent-length: 5000000\r\n\r\n` +
      `--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n${"x".repeat(2_000_000)}`,
  );
  const [{ key } = {}] = await eventually(() => {
    const begun = rows("part");
    return begun.length > 0 && tablesIn(`file-${begun[0]?.key}`).length > 0 ? begun : undefined;
  });
  socket.destroy();
  await eventually(() => rows("part").length === 0 && rows("removed").length === 0);
  expect(tablesIn(`file-${key}`)).toEqual([]);
  expect(rows("file")).toHaveLength(files);
});

describe.concurrent("an upload", () => {
  const begin = (bytes: number, key = KEYS.one) =>
    client(key).uploads.create({
      bytes,
      filename: "big.bin",
      mime_type: "application/octet-stream",
      purpose: "assistants",
    });
  const addPart = (id: string, bytes: Uint8Array<ArrayBuffer>, key = KEYS.one) =>
    client(key).uploads.parts.create(id, { data: new File([bytes], "part") });

  it("becomes a file of its parts in the given order, in whatever order they arrived", async () => {
    const bytes = new Uint8Array(randomBytes(5_000_000));
    const cuts = [0, 1, 2_000_000, 2_000_000, 4_999_999, bytes.length];
    const pieces = cuts.slice(1).map((end, index) => bytes.slice(cuts[index], end));
    const upload = await begin(bytes.length);
    expect(upload).toEqual({
      id: expect.stringMatching(/^upload_\w{22}$/),
      object: "upload",
      bytes: bytes.length,
      created_at: expect.any(Number),
      expires_at: upload.created_at + 3600,
      filename: "big.bin",
      purpose: "assistants",
      status: "pending",
      file: null,
    });
    const parts = await Promise.all([...pieces, new Uint8Array(1_500_000)].map((piece) => addPart(upload.id, piece)));
    expect(parts[0]).toEqual({
      id: expect.stringMatching(/^part_\w+$/),
      object: "upload.part",
      created_at: expect.any(Number),
      upload_id: upload.id,
    });
    const ids = parts.slice(0, pieces.length).map(({ id }) => id);
    const completed = await client().uploads.complete(upload.id, { part_ids: ids, md5: md5(bytes) });
    expect(completed).toMatchObject({ status: "completed", file: { bytes: bytes.length, filename: "big.bin" } });
    const { id = "" } = completed.file ?? {};
    expect(await client().files.retrieve(id)).toEqual(completed.file);
    // A client that has lost the answer asks again.
    expect(await client().uploads.complete(upload.id, { part_ids: ids })).toEqual(completed);
    expect(await client().uploads.complete(upload.id, { part_ids: ids, md5: md5(bytes) })).toEqual(completed);
    await expect(client().uploads.complete(upload.id, { part_ids: ids, md5: "0".repeat(32) })).rejects.toMatchObject({
      ...{ status: 400, code: "md5_mismatch" },
    });
    await expect(client().uploads.complete(upload.id, { part_ids: ids.slice(1) })).rejects.toMatchObject({
      ...{ status: 400, code: "upload_completed" },
    });
    expect(sha256(new Uint8Array(await (await client().files.content(id)).arrayBuffer()))).toBe(sha256(bytes));
    // The unused part is deleted.
    const kept = () => gateway.fileBytes.exec(bytesOf(id), "SELECT SUM(length(bytes)) AS sum FROM piece");
    await eventually(() => kept()[0]?.sum === bytes.length);
    await client().files.delete(id);
    await gone(id);
    expect(tablesIn(id)).toEqual([]);
  });

  it("with missing parts is a 400, and can be continued", async () => {
    const upload = await begin(10);
    const { id: first } = await addPart(upload.id, new Uint8Array(6));
    const { id: second } = await addPart(upload.id, new Uint8Array(4));
    const other = await begin(4);
    const { id: foreign } = await addPart(other.id, new Uint8Array(4));
    const wrong: [object, { param: string; code: string }][] = [
      [{ part_ids: [first] }, { param: "part_ids", code: "bytes_mismatch" }],
      [{ part_ids: [first, foreign] }, { param: "part_ids[1]", code: "part_not_found" }],
      [{ part_ids: [second, second] }, { param: "part_ids[1]", code: "invalid_value" }],
      [
        { part_ids: [first, second], md5: "0".repeat(32) },
        { param: "md5", code: "md5_mismatch" },
      ],
    ];
    for (const [body, wanted] of wrong) {
      const answer = await call("POST", `/v1/uploads/${upload.id}/complete`, JSON.stringify(body), {
        "content-type": "application/json",
      });
      await expectError(answer, { status: 400, ...wanted });
    }
    expect(await client().uploads.complete(upload.id, { part_ids: [first, second] })).toMatchObject({
      status: "completed",
    });
  });

  it("that is cancelled accepts no more parts, and leaves nothing behind", async () => {
    const upload = await begin(2_000_000);
    await addPart(upload.id, new Uint8Array(1_000_000));
    const file = `file-${upload.id.slice("upload_".length)}`;
    expect(tablesIn(file)).toHaveLength(1);
    expect(await client().uploads.cancel(upload.id)).toMatchObject({ status: "cancelled", file: null });
    const json = { "content-type": "application/json" };
    const wanted = { status: 400, param: "upload_id", code: "upload_cancelled" };
    await expectError(await call("POST", `/v1/uploads/${upload.id}/cancel`, "{}", json), wanted);
    await expectError(await call("POST", `/v1/uploads/${upload.id}/complete`, '{"part_ids":[]}', json), wanted);
    await expectError(
      await call("POST", `/v1/uploads/${upload.id}/parts`, form({ data: new File(["x"], "x") })),
      wanted,
    );
    await gone(file);
    expect(tablesIn(file)).toEqual([]);
  });

  it("of another tenant does not exist", async () => {
    const { id } = await begin(1);
    const json = { "content-type": "application/json" };
    for (const path of ["cancel", "complete"]) {
      const answer = await call("POST", `/v1/uploads/${id}/${path}`, '{"part_ids":[]}', json, KEYS.other);
      await expectError(answer, { status: 404, code: "upload_not_found", param: "upload_id" });
    }
    const answer = await call("POST", `/v1/uploads/${id}/parts`, form({ data: new File(["x"], "x") }), {}, KEYS.other);
    await expectError(answer, { status: 404, code: "upload_not_found" });
  });

  it("that would be too large is a 413", async () => {
    await expect(begin(MAX_FILE_BYTES + 1)).rejects.toMatchObject({
      status: 413,
      param: "bytes",
      code: "file_too_large",
    });
  });
});

describe("limits of files", () => {
  let tenants = 0;
  /** Makes a tenant with limits, and keys of it. */
  async function tenantWith(limits: object, ofKey: object = {}) {
    tenants += 1;
    const tenant = `limited-${tenants}`;
    await ask(gateway, "POST", `/v1/admin/tenants/${tenant}`, { limits });
    const newKey = async (limits: object) => {
      const { value } = await ask<{ value: string }>(gateway, "POST", "/v1/admin/keys", { tenant, limits });
      return value;
    };
    return { tenant, key: await newKey(ofKey), other: await newKey({}) };
  }

  it("of their number give a 429 that names the limit, until a file is deleted", async () => {
    const { key } = await tenantWith({ stored_files: 2 });
    const { id } = await upload("x", "a", key);
    await upload("x", "b", key);
    const refused = { status: 429, code: "storage_quota_exceeded", message: expect.stringContaining("stored_files") };
    await expect(upload("x", "c", key)).rejects.toMatchObject(refused);
    await client(key).files.delete(id);
    await upload("x", "c", key);
  });

  it("of their bytes give a 429, or a 413 for a file that could never be stored", async () => {
    const { key } = await tenantWith({ stored_file_bytes: 1_000_000 });
    await upload(new Uint8Array(700_000), "a", key);
    const told = { code: "storage_quota_exceeded", message: expect.stringContaining("stored_file_bytes") };
    await expect(upload(new Uint8Array(700_000), "b", key)).rejects.toMatchObject({ status: 429, ...told });
    await expect(upload(new Uint8Array(1_000_001), "b", key)).rejects.toMatchObject({ status: 413, ...told });
    await upload(new Uint8Array(300_000), "b", key);
  });

  it("of a key apply to that key alone; parts of uploads count, too", async () => {
    const { key, other } = await tenantWith({}, { stored_file_bytes: 1_000 });
    const begun = await client(key).uploads.create({
      bytes: 900,
      filename: "a",
      mime_type: "text/plain",
      purpose: "vision",
    });
    const part = await client(key).uploads.parts.create(begun.id, { data: new File([new Uint8Array(900)], "a") });
    await expect(upload(new Uint8Array(200), "b", key)).rejects.toMatchObject({
      status: 429,
      code: "storage_quota_exceeded",
    });
    await upload(new Uint8Array(200), "b", other);
    await client(key).uploads.complete(begun.id, { part_ids: [part.id] });
    await upload(new Uint8Array(100), "c", key);
  });

  it("count nothing after an administrator has erased the tenant", async () => {
    const { tenant, key } = await tenantWith({});
    const { id } = await upload("x", "a", key);
    const object = objectId(`${tenant}:${id.slice("file-".length)}`, uniqueKeyOf("FileBytes"));
    await ask(gateway, "DELETE", `/v1/admin/tenants/${tenant}`);
    const left = () => gateway.fileBytes.exec(object, "SELECT name FROM sqlite_schema WHERE name = 'piece'");
    await gone(id, tenant);
    expect(left()).toEqual([]);
    const directory = objectId(tenant, uniqueKeyOf("FileDirectory"));
    expect(gateway.fileDirectories.exec(directory, "SELECT key FROM file")).toEqual([]);
  });
});
