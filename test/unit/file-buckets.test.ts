import { env } from "cloudflare:workers";
import { Buffer } from "node:buffer";
import { createHash, createHmac } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { S3Config } from "../../src/config/files.ts";
import { loadConfig } from "../../src/config/index.ts";
import { withObjects } from "../../src/store/objects/objects.ts";
import { BytesInBucket, r2Bucket } from "../../src/store/tenant/files/bucket.ts";
import { FileClient } from "../../src/store/tenant/files/file-client.ts";
import { type Bucket, LISTED } from "../../src/store/tenant/files/object-bucket.ts";
import { s3Bucket } from "../../src/store/tenant/files/s3-bucket.ts";

const { FILES_OF_TESTS: FILES } = env as unknown as { FILES_OF_TESTS: R2Bucket };

describe("a request to a bucket that speaks S3", () => {
  it("is signed by AWS's rules, for any name", async () => {
    const names = ["files/a", "files/a b/!'()*", "é/~_.-", "100%/+&=?#"];
    for (const name of names) {
      const asked: { url: URL; headers: Headers; body: Uint8Array }[] = [];
      const bucket = s3Bucket({
        endpoint: "https://s3.example.com:9000",
        bucket: "owls",
        region: "eu-west-1",
        accessKeyId: "id",
        secretAccessKey: "secret",
        fetch: async (url: string, init: RequestInit) => {
          asked.push({ url: new URL(url), headers: new Headers(init.headers), body: init.body as Uint8Array });
          return new Response();
        },
      } as unknown as S3Config);
      await bucket.put(name, Uint8Array.of(1, 2, 3));
      const [{ url, headers, body } = { url: new URL("a:"), headers: new Headers(), body: new Uint8Array() }] = asked;
      expect(decodeURIComponent(url.pathname)).toBe(`/owls/${name}`);
      const time = headers.get("x-amz-date") ?? "";
      const digest = hash(body);
      expect(headers.get("x-amz-content-sha256")).toBe(digest);
      const lines = [`host:${url.host}`, `x-amz-content-sha256:${digest}`, `x-amz-date:${time}`];
      const signed = "host;x-amz-content-sha256;x-amz-date";
      const request = ["PUT", url.pathname, "", ...lines, "", signed, digest].join("\n");
      const scope = `${time.slice(0, 8)}/eu-west-1/s3/aws4_request`;
      const steps = [time.slice(0, 8), "eu-west-1", "s3", "aws4_request"];
      const text = ["AWS4-HMAC-SHA256", time, scope, hash(request)].join("\n");
      let key: string | Buffer = "AWS4secret";
      for (const step of [...steps, text]) key = createHmac("sha256", key).update(step).digest();
      expect(headers.get("authorization")).toContain(`Signature=${Buffer.from(key).toString("hex")}`);
    }
  });
});

const hash = (bytes: string | Uint8Array) => createHash("sha256").update(bytes).digest("hex");

describe("bytes in R2", () => {
  it("are read unchanged, and the record names their place", async () => {
    const tenant = crypto.randomUUID();
    const none = { files: null, bytes: null };
    const limits = { tenant: none, key: none };
    const config = loadConfig(env);
    const files = new FileClient({ ...withObjects(env), FILES }, tenant);
    using file = await files.receive("key", { tenant, config, limits, maxBytes: 10_000_000, field: "file" });
    const bytes = new Uint8Array(2_500_000).map((_, index) => index % 251);
    await file.write(bytes);
    const about = { filename: "a", mimeType: null, purpose: "assistants" as const, createdAt: 1, expiresAt: null };
    const record = await files.commit(file, about, limits);
    expect(record.at).toBe("r2");
    expect((await FILES.list({ prefix: `${tenant}/` })).objects).toHaveLength(3);
    const { body } = await files.content(`file-${record.key}`);
    // `toEqual` would look at each byte.
    expect(Buffer.from(await new Response(body).arrayBuffer()).equals(bytes)).toBe(true);
    // The binding has been removed.
    await expect(new FileClient(withObjects(env), tenant).content(`file-${record.key}`)).rejects.toMatchObject({
      status: 503,
    });
  });

  it("are deleted with their file, except kept parts", async () => {
    const bucket = r2Bucket(FILES);
    await deletes(bucket, 5);
    const prefix = `${crypto.randomUUID()}/`;
    for (const name of ["a", "b", "c"]) await bucket.put(prefix + name, new Uint8Array(1));
    expect(await bucket.list(prefix, `${prefix}a`)).toEqual([`${prefix}b`, `${prefix}c`]);
  });
});

describe("bytes in any bucket", () => {
  it("are deleted with their file, also if one answer does not list all of them", async () => {
    const names = new Set<string>();
    const bucket: Bucket = {
      put: async (name) => void names.add(name),
      get: async () => null,
      list: async (prefix, after) => {
        const found = [...names].filter((name) => name.startsWith(prefix) && name > after);
        return found.sort().slice(0, LISTED);
      },
      remove: async (gone) => {
        for (const name of gone) names.delete(name);
      },
    };
    await deletes(bucket, LISTED + 5);
  });
});

/** Deletes a file with this many pieces, except kept parts, and then all of it. */
async function deletes(bucket: Bucket, pieces: number): Promise<void> {
  const tenant = `../${crypto.randomUUID()}'<&`;
  const bytes = new BytesInBucket("r2", bucket, tenant);
  for (const [part, count] of [
    [1, pieces],
    [2, 2],
    [10, 3],
  ] as const) {
    const sink = bytes.sink("key", part);
    for (let seq = 0; seq < count; seq += 1) await sink.append(seq, new Uint8Array(1));
  }
  await bytes.sink("key2", 0).append(0, new Uint8Array(1));
  const prefix = `%2E.%2F${tenant.slice(3, 39)}%27%3C%26/`;
  const left = async () => (await bucket.list(prefix, "")).map((name) => name.slice(prefix.length));
  await bytes.remove("key", [10]);
  expect(await left()).toEqual(["key/10/0", "key/10/1", "key/10/2", "key2/0/0"]);
  await bytes.remove("key", null);
  expect(await left()).toEqual(["key2/0/0"]);
}
