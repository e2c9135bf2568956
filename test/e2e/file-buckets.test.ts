import { createHash, randomBytes } from "node:crypto";
import { request } from "node:http";
import type OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { backup } from "../../cli/backup/backup.ts";
import { restore } from "../../cli/backup/restore.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { ask, type MadeKey, makeKey, newTenant, startWithKeys } from "./key-support.ts";
import { ACCESS, type S3Double, startS3 } from "./s3-double.ts";
import { cleanUp, newFolder } from "./serve-support.ts";
import { serveFolder } from "./served-folder.ts";
import { eventually, type Gateway } from "./support.ts";

/** Bytes of files in a bucket that speaks S3. */

let s3: S3Double;
let gateway: Gateway;
let vllm: SimulatorServer;
const variables = () => ({
  FILES_S3_ENDPOINT: s3.url,
  FILES_S3_BUCKET: "owls",
  FILES_S3_REGION: ACCESS.region,
  FILES_S3_ACCESS_KEY_ID: ACCESS.id,
  FILES_S3_SECRET_ACCESS_KEY: ACCESS.secret,
});
beforeAll(async () => {
  s3 = await startS3();
  vllm = await serveSimulator();
  gateway = await startWithKeys(variables());
});
afterAll(async () => {
  cleanUp();
  await gateway.close();
  await vllm.close();
  await s3.close();
});

async function newClient(): Promise<{ tenant: string; client: OpenAI }> {
  const tenant = newTenant();
  const { value }: MadeKey = await makeKey(gateway, tenant);
  return { tenant, client: gateway.client({ apiKey: value }) };
}

const sum = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const piecesOf = (tenant: string) => [...s3.objects.keys()].filter((name) => name.startsWith(`owls/${tenant}/`));
const upload = (client: OpenAI, bytes: Uint8Array<ArrayBuffer> | string, name = "a.txt") =>
  client.files.create({ file: new File([bytes], name), purpose: "assistants" });

async function read({ files }: OpenAI, id: string): Promise<Uint8Array> {
  return new Uint8Array(await (await files.content(id)).arrayBuffer());
}

it("are stored in pieces, read as a whole, and deleted with the file", async () => {
  const { tenant, client } = await newClient();
  const bytes = new Uint8Array(randomBytes(2_500_000));
  const { id } = await upload(client, bytes);
  expect(piecesOf(tenant)).toHaveLength(3);
  expect(sum(await read(client, id))).toBe(sum(bytes));
  const empty = await upload(client, "");
  expect(await read(client, empty.id)).toHaveLength(0);
  await client.files.delete(id);
  await client.files.delete(empty.id);
  await eventually(() => piecesOf(tenant).length === 0);
});

it("of an upload are its parts; those that are not in the file are deleted", async () => {
  const { tenant, client } = await newClient();
  const pieces = [1024 * 1024, 5, 1_500_000].map((length) => new Uint8Array(randomBytes(length)));
  const bytes = Buffer.concat(pieces);
  const begun = await client.uploads.create({
    bytes: bytes.length,
    filename: "a",
    mime_type: "text/plain",
    purpose: "assistants",
  });
  const ids: string[] = [];
  for (const piece of [...pieces, new Uint8Array(9)]) {
    ids.push((await client.uploads.parts.create(begun.id, { data: new File([piece], "part") })).id);
  }
  const md5 = createHash("md5").update(bytes).digest("hex");
  const { file } = await client.uploads.complete(begun.id, { part_ids: ids.slice(0, 3), md5 });
  expect(sum(await read(client, file?.id ?? ""))).toBe(sum(bytes));
  await eventually(() => piecesOf(tenant).length === 4);
});

it("of a part that still arrives when its upload is cancelled are deleted, too", async () => {
  const { tenant, client } = await newClient();
  const begun = await client.uploads.create({
    bytes: 4_000_000,
    filename: "a",
    mime_type: "text/plain",
    purpose: "assistants",
  });
  const { port, hostname } = new URL(gateway.url);
  const answered = Promise.withResolvers<number | undefined>();
  const sending = request(
    {
      ...{ method: "POST", hostname, port, path: `/v1/uploads/${begun.id}/parts` },
      headers: { authorization: `Bearer ${client.apiKey}`, "content-type": "multipart/form-data; boundary=b" },
    },
    ({ statusCode }) => answered.resolve(statusCode),
  );
  sending.write(`--b\r\nContent-Disposition: form-data; name="data"; filename="x"\r\n\r\n${"x".repeat(1_500_000)}`);
  await eventually(() => piecesOf(tenant).length === 1);
  await client.uploads.cancel(begun.id);
  await eventually(() => piecesOf(tenant).length === 0);
  sending.end(`${"x".repeat(1_500_000)}\r\n--b--\r\n`);
  expect(await answered.promise).toBe(409);
  await eventually(() => piecesOf(tenant).length === 0);
});

it("are read for vector stores, and erased with the tenant", async () => {
  const { tenant, client } = await newClient();
  const { id } = await upload(client, "A barn owl screeches.");
  const store = await client.vectorStores.create({});
  await client.vectorStores.files.createAndPoll(store.id, { file_id: id }, { pollIntervalMs: 20 });
  const { data } = await client.vectorStores.search(store.id, { query: "screeches" });
  expect(data.map(({ file_id }) => file_id)).toEqual([id]);
  await ask(gateway, "DELETE", `/v1/admin/tenants/${tenant}`);
  await eventually(() => piecesOf(tenant).length === 0);
});

it("are a 503 if the bucket fails, which leaves nothing half-written; pending deletions happen when it answers again", async () => {
  const { tenant, client } = await newClient();
  const kept = await upload(client, "Kept.");
  const down = { status: 503, code: "file_storage_unavailable" };
  s3.broken.method = "PUT";
  await expect(upload(client, new Uint8Array(1_500_000))).rejects.toMatchObject(down);
  s3.broken.method = "GET";
  await expect(client.files.content(kept.id)).rejects.toMatchObject(down);
  s3.broken.method = undefined;
  expect((await client.files.list()).data.map(({ id }) => id)).toEqual([kept.id]);
  expect(Buffer.from(await read(client, kept.id)).toString()).toBe("Kept.");
  await eventually(() => piecesOf(tenant).length === 1);
});

it.each([
  ["with a wrong key", () => ({ FILES_S3_SECRET_ACCESS_KEY: "another" }), "was answered 403: "],
  ["at an endpoint that is dead", () => ({ FILES_S3_ENDPOINT: "http://127.0.0.1:9" }), "failed: "],
])("are a 503 %s; the log names the endpoint's host and the request, and no secret", async (_, wrong, why) => {
  const set = { ...variables(), ...wrong() };
  const other = await startWithKeys(set);
  const { value }: MadeKey = await makeKey(other, newTenant());
  await expect(upload(other.client({ apiKey: value }), "x")).rejects.toMatchObject({ status: 503 });
  const { host } = new URL(set.FILES_S3_ENDPOINT);
  await eventually(() => other.logs().includes(`"error":"Error: PUT at ${host} ${why}`));
  expect(other.logs()).not.toContain(set.FILES_S3_SECRET_ACCESS_KEY);
  await other.close();
});

it("stay in their place when a bucket is configured or removed", async () => {
  const data = newFolder();
  const open = { ALLOW_ANONYMOUS: "true" };
  const first = await serveFolder(data, vllm, open);
  const inRows = await upload(first.openai, "In rows.");
  await first.stop("SIGTERM");
  const second = await serveFolder(data, vllm, { ...open, ...variables() });
  const inBucket = await upload(second.openai, "In a bucket.");
  expect(Buffer.from(await read(second.openai, inRows.id)).toString()).toBe("In rows.");
  expect(Buffer.from(await read(second.openai, inBucket.id)).toString()).toBe("In a bucket.");
  await second.stop("SIGTERM");
  const third = await serveFolder(data, vllm, open);
  expect(Buffer.from(await read(third.openai, inRows.id)).toString()).toBe("In rows.");
  await expect(third.openai.files.content(inBucket.id)).rejects.toMatchObject({ status: 503 });
  await third.stop("SIGTERM");
});

it("are not in a backup, which says so; a copy of the bucket has them after a restore", async () => {
  const data = newFolder();
  const open = { ALLOW_ANONYMOUS: "true", ...variables() };
  const server = await serveFolder(data, vllm, open);
  const { id } = await upload(server.openai, new Uint8Array(randomBytes(1_100_000)));
  const before = sum(await read(server.openai, id));
  const into = newFolder();
  const made = await backup({ data, into });
  expect(made.inBuckets).toEqual({ files: 1, bytes: 1_100_000 });
  // `aws s3 sync` or `rclone copy` do as much.
  const copied = [...s3.objects].map(([name, bytes]) => [name.replace(/^owls/, "copy-of-owls"), bytes] as const);
  await server.openai.files.delete(id);
  await server.stop("SIGTERM");
  const other = newFolder();
  expect((await restore({ from: into, data: other })).inBuckets).toEqual(made.inBuckets);
  for (const [name, bytes] of copied) s3.objects.set(name, bytes);
  const restored = await serveFolder(other, vllm, { ...open, FILES_S3_BUCKET: "copy-of-owls" });
  expect(sum(await read(restored.openai, id))).toBe(before);
  await restored.stop("SIGTERM");
});
