import { env } from "cloudflare:workers";
import { describe, expect, it } from "vitest";
import { loadConfig } from "../../src/config/index.ts";
import { BytesInBucket, LISTED, r2Bucket } from "../../src/store/files/bucket.ts";
import { FileClient } from "../../src/store/files/file-client.ts";
import { signature } from "../../src/store/files/s3-bucket.ts";

const { FILES_OF_TESTS: FILES } = env as unknown as { FILES_OF_TESTS: R2Bucket };
const EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/** The examples of AWS's own documentation of signatures ("Signature Calculations for the Authorization Header"). */
describe("a signature", () => {
  const signer = {
    accessKeyId: "AKIAIOSFODNN7EXAMPLE",
    secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    region: "us-east-1",
  };
  const at = new Date("2013-05-24T00:00:00Z");
  const host = "https://examplebucket.s3.amazonaws.com";

  it.each([
    ["/test.txt", { range: "bytes=0-9" }, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"],
    ["/?max-keys=2&prefix=J", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"],
    ["/?lifecycle", {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"],
  ])("of %s is AWS's", async (path, others, expected) => {
    const request = { method: "GET", url: new URL(host + path), body: EMPTY };
    const { authorization } = await signature(request, signer, at, others);
    expect(authorization).toContain(`Signature=${expected}`);
  });
});

describe("bytes in R2", () => {
  it("are read as they were received, and the record says where they are", async () => {
    const tenant = crypto.randomUUID();
    const none = { files: null, bytes: null };
    const limits = { tenant: none, key: none };
    const config = loadConfig(env);
    const files = new FileClient({ ...env, FILES }, tenant);
    using file = await files.receive("key", { tenant, config, limits, maxBytes: 10_000_000, field: "file" });
    const bytes = new Uint8Array(2_500_000).map((_, index) => index % 251);
    await file.write(bytes);
    const about = { filename: "a", mimeType: null, purpose: "assistants" as const, createdAt: 1, expiresAt: null };
    const record = await files.commit(file, about, limits);
    expect(record.at).toBe("r2");
    expect((await FILES.list({ prefix: `${tenant}/` })).objects).toHaveLength(3);
    const { body } = await files.content(`file-${record.key}`);
    expect(new Uint8Array(await new Response(body).arrayBuffer())).toEqual(bytes);
    // Where nobody has bound it any more.
    await expect(new FileClient(env, tenant).content(`file-${record.key}`)).rejects.toMatchObject({ status: 503 });
  });

  it("go with their file, however many they are, but for the parts that are kept", async () => {
    const bucket = r2Bucket(FILES);
    const tenant = `../${crypto.randomUUID()}'<&`;
    const bytes = new BytesInBucket("r2", bucket, tenant);
    for (const [part, pieces] of [
      [1, LISTED + 5],
      [2, 2],
      [10, 3],
    ] as const) {
      const sink = bytes.sink("key", part);
      for (let seq = 0; seq < pieces; seq += 1) await sink.append(seq, new Uint8Array(1));
    }
    await bytes.sink("key2", 0).append(0, new Uint8Array(1));
    const prefix = `%2E.%2F${tenant.slice(3, 39)}%27%3C%26/`;
    const left = async () => (await FILES.list({ prefix })).objects.map(({ key }) => key.slice(prefix.length)).sort();
    await bytes.remove("key", [10]);
    expect(await left()).toEqual(["key/10/0", "key/10/1", "key/10/2", "key2/0/0"]);
    await bytes.remove("key", null);
    expect(await left()).toEqual(["key2/0/0"]);
  });
});
