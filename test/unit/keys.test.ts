import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BATCH_VERSIONS } from "../../src/batches/batch-table.ts";
import { loadConfig, type Variables } from "../../src/config/index.ts";
import { grants, hasHost, hasModel, policyOf, restrictedConfig } from "../../src/contract/grants.ts";
import { isMinted, isMintedForm, mintKey, newMint } from "../../src/store/deployment/keys/api-keys.ts";
import { AgeingCache } from "../../src/store/deployment/keys/key-cache.ts";
import { AuditLog, DIRECTORY_VERSIONS } from "../../src/store/deployment/keys/key-directory.ts";
import { SCHEMA_VERSION } from "../../src/store/home/tables.ts";
import { QUOTA_VERSIONS } from "../../src/store/limits/quota-object.ts";
import { UsageStore } from "../../src/store/limits/usage.ts";
import { Schema } from "../../src/store/objects/schema.ts";
import { SCHEMA_VERSIONS } from "../../src/store/objects/schema-versions.ts";
import { FILE_DIRECTORY_VERSIONS } from "../../src/store/tenant/files/directory-tables.ts";
import { FILE_BYTES_VERSIONS } from "../../src/store/tenant/files/file-bytes.ts";
import { FileTable } from "../../src/store/tenant/files/file-table.ts";
import { RESPONSE_INDEX_VERSIONS } from "../../src/store/tenant/response-index/response-index.ts";
import { VECTOR_STORE_VERSIONS } from "../../src/store/tenant/vector-stores/tables.ts";
import { WEBHOOK_VERSIONS } from "../../src/store/tenant/webhooks/webhooks.ts";
import { counted } from "../hostile/counting.ts";

/** An object whose storage a test may use freely. */
function emptyObject(): DurableObjectStub<import("../../src/store/limits/quota-object.ts").Quota> {
  return env.QUOTAS.getByName(crypto.randomUUID());
}

describe("a key's text", () => {
  it("is valid only with its deployment's secret", () => {
    const mint = newMint();
    const key = mintKey(mint);
    expect(isMintedForm(key) && isMinted(key, mint)).toBe(true);
    expect(isMinted(key, newMint())).toBe(false);
    fc.assert(
      fc.property(fc.integer({ min: 6, max: key.length - 1 }), fc.constantFrom(..."aZ0_-"), (at, char) => {
        const changed = key.slice(0, at) + char + key.slice(at + 1);
        expect(isMinted(changed, mint)).toBe(changed === key);
      }),
    );
  });

  it("of another form is never valid", () => {
    fc.assert(fc.property(fc.string({ maxLength: 100 }), (text) => !isMintedForm(text)));
  });
});

describe("an isolate's cache of keys", () => {
  const never = () => Promise.reject(new Error("Nobody may be asked."));
  const beside: Promise<unknown>[] = [];

  it("is used for its time, and refreshed beside a request in the second half of it", async () => {
    const cache = new AgeingCache<string>();
    const wait = (promise: Promise<unknown>) => void beside.push(promise);
    cache.put("k", "old", Date.now() - 40);
    expect(cache.get("k", 100, never, wait)).toBe("old");
    cache.put("k", "old", Date.now() - 60);
    expect(cache.get("k", 100, async () => "new", wait)).toBe("old");
    await Promise.all(beside);
    expect(cache.get("k", 100, never, wait)).toBe("new");
    cache.put("k", "old", Date.now() - 100);
    expect(await cache.get("k", 100, async () => "newest", wait)).toBe("newest");
    // A clock that has gone back gives no age.
    cache.put("k", "from the future", Date.now() + 60_000);
    expect(await cache.get("k", 100, async () => "now", wait)).toBe("now");
    cache.put("k", "old", Date.now() - 200);
    await expect(cache.get("k", 100, never, wait)).rejects.toThrow("Nobody");
  });

  it("has a maximum size, and drops the oldest entry", async () => {
    const cache = new AgeingCache<number>(100);
    for (let index = 0; index < 1_000; index += 1)
      await cache.get(
        `${index}`,
        60_000,
        async () => index,
        () => {},
      );
    expect(cache.has("899", 60_000)).toBe(false);
    expect(cache.has("900", 60_000)).toBe(true);
  });
});

describe("grants", () => {
  it("of a key cannot exceed its tenant's", () => {
    const parsed = (given: object) => grants.parse(given);
    const policy = policyOf(
      parsed({
        models: ["a", "b*"],
        max_output_tokens: 10,
        hosted_tools: ["mcp", "container"],
        vllm_extras: ["priority"],
        tier: "t",
      }),
      parsed({
        models: ["b1", "c"],
        max_output_tokens: 20,
        hosted_tools: ["mcp", "web_search"],
        force_store_false: true,
      }),
    );
    expect(policy).toMatchObject({
      maxOutputTokens: 10,
      hostedTools: ["mcp"],
      vllmExtras: ["priority"],
      forceStoreFalse: true,
      tier: "t",
    });
    const may = (name: string) => policy.models.every((models) => hasModel(models, name));
    expect(["a", "b1", "b2", "c"].filter(may)).toEqual(["b1"]);
  });

  it.each([
    ["mcp.acme.dev", "https://mcp.acme.dev/x", true],
    ["mcp.acme.dev", "https://mcp.acme.dev:8443/x", false],
    ["mcp.acme.dev:8443", "https://mcp.acme.dev:8443/x", true],
    ["*.acme.dev", "https://a.b.acme.dev/", true],
    ["*.acme.dev", "https://acme.dev/", false],
    ["*.acme.dev", "https://evilacme.dev/", false],
    ["mcp.acme.dev", "https://mcp.acme.dev.evil.dev/", false],
    ["mcp.acme.dev", "https://mcp.acme.dev@evil.dev/", false],
    ["[::1]:80", "https://[::1]:80/", true],
  ])("the host %s has %s: %s", (host, url, expected) => {
    expect(hasHost([host], new URL(url))).toBe(expected);
  });
});

it("do not permit a redirect from an allowed MCP server to another", () => {
  const vars = { VLLM_BASE_URL: "http://vllm/v1" } as Variables;
  const { tools } = restrictedConfig(loadConfig(vars), policyOf(null, grants.parse({ mcp_hosts: ["mcp.acme.dev"] })));
  const urls = ["https://mcp.acme.dev/a", "https://other.acme.dev/a"];
  expect(urls.map((url) => tools.mcpGuard.limit?.(new URL(url)))).toEqual([true, false]);
  // Other tools are not restricted by hosts.
  expect(tools.guard).not.toHaveProperty("limit");
});

describe("an estimate of tokens", () => {
  it("reads each text of a request once", () => {
    const reads = (count: number) => {
      const items = Array.from({ length: count }, (_, index) => ({
        type: "message",
        content: [{ text: `text ${index}` }],
      }));
      const { value, reads } = counted(items);
      estimateTokens(value);
      return reads();
    };
    expect(reads(1000)).toBeLessThanOrEqual(110 * reads(10));
  });

  it("is bounded for a deep value, and counts an image as one, of any size", () => {
    let deep: unknown = "x";
    for (let depth = 0; depth < 10_000; depth += 1) deep = [deep];
    expect(estimateTokens(deep)).toBeLessThan(100);
    const image = `data:image/png;base64,${"A".repeat(4_000_000)}`;
    expect(estimateTokens([{ image_url: image }])).toBeLessThan(1_100);
    expect(estimateTokens("word ".repeat(400))).toBe(500);
    expect(estimateTokens("多".repeat(400))).toBe(300);
  });
});

describe("the schema of an object", () => {
  const V1 = [["CREATE TABLE t (a TEXT NOT NULL)"]];
  const V2 = [...V1, ["ALTER TABLE t ADD COLUMN b INTEGER NOT NULL DEFAULT 7", "CREATE TABLE u (c TEXT)"]];

  it("is migrated with its rows, once, and as a whole", async () => {
    await runInDurableObject(emptyObject(), (_, { storage }) => {
      const { sql } = storage;
      new Schema(storage, V1).open();
      sql.exec("INSERT INTO t (a) VALUES ('kept')");
      expect(new Schema(storage, V2).version).toBe(1);
      expect(() => new Schema(storage, [...V2, ["NO SQL"]]).open()).toThrow();
      expect(new Schema(storage, V2).version).toBe(1);
      expect(sql.exec("SELECT * FROM t").toArray()).toEqual([{ a: "kept" }]);
      const schema = new Schema(storage, V2);
      schema.open();
      schema.open();
      expect(schema.version).toBe(2);
      expect(sql.exec("SELECT * FROM t").toArray()).toEqual([{ a: "kept", b: 7 }]);
    });
  });

  it("is not made by reading", async () => {
    await runInDurableObject(emptyObject(), (_, { storage }) => {
      const schema = new Schema(storage, V2);
      expect([schema.version, schema.rows("SELECT 1 FROM keys")]).toEqual([0, []]);
      const tables = storage.sql.exec("SELECT name FROM sqlite_schema WHERE name NOT LIKE '\\_cf\\_%' ESCAPE '\\'");
      expect(tables.toArray()).toEqual([]);
    });
  });

  /** The tables of version 1. They are copies on purpose, because a released version never changes. */
  it("of version 1 is unchanged", () => {
    const text = (versions: readonly (readonly string[])[]) => versions[0]?.map((each) => each.replaceAll(/\s+/g, " "));
    expect(text(DIRECTORY_VERSIONS)).toEqual([
      "CREATE TABLE keys (id TEXT NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, body TEXT NOT NULL) WITHOUT ROWID",
      "CREATE INDEX keys_of_tenant ON keys (tenant, id)",
      "CREATE TABLE secrets ( sha256 TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL, expires_at INTEGER) WITHOUT ROWID",
      "CREATE INDEX secrets_of_key ON secrets (key)",
      "CREATE TABLE tenants (tenant TEXT NOT NULL PRIMARY KEY, limits TEXT NOT NULL) WITHOUT ROWID",
      "CREATE TABLE mint (secret TEXT NOT NULL)",
      "CREATE TABLE audit ( seq INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, kind TEXT NOT NULL, type TEXT NOT NULL, tenant TEXT NOT NULL, body TEXT NOT NULL)",
    ]);
    expect(text(QUOTA_VERSIONS)).toEqual([
      "CREATE TABLE accounts (key TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
      "CREATE TABLE usage ( start INTEGER NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, requests INTEGER NOT NULL, input INTEGER NOT NULL, cached INTEGER NOT NULL, output INTEGER NOT NULL, cost REAL NOT NULL, PRIMARY KEY (start, key, model)) WITHOUT ROWID",
      "CREATE TABLE homes (home TEXT NOT NULL PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID",
    ]);
    expect(text(QUOTA_VERSIONS.slice(2))).toEqual([
      "CREATE TABLE used ( start INTEGER NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, model TEXT NOT NULL, requests INTEGER NOT NULL, input INTEGER NOT NULL, cached INTEGER NOT NULL, output INTEGER NOT NULL, units REAL NOT NULL, cost REAL NOT NULL, PRIMARY KEY (start, key, kind, model)) WITHOUT ROWID",
      "INSERT INTO used (start, key, kind, model, requests, input, cached, output, units, cost) SELECT start, key, 'completions', model, requests, input, cached, output, 0, cost FROM usage",
      "DROP TABLE usage",
    ]);
    expect(text(QUOTA_VERSIONS.slice(1))).toEqual([
      "CREATE TABLE stored ( home TEXT NOT NULL, key TEXT NOT NULL, bytes INTEGER NOT NULL, responses INTEGER NOT NULL, conversations INTEGER NOT NULL, PRIMARY KEY (home, key)) WITHOUT ROWID",
    ]);
  });

  it("of a directory of files of version 2 can be opened: uploads go on, and stored files are counted", async () => {
    await runInDurableObject(emptyObject(), (_, { storage }) => {
      const old = new Schema(storage, FILE_DIRECTORY_VERSIONS.slice(0, 2));
      const insert = "INSERT INTO file (key, owner, purpose, bytes, created_at, body) VALUES (?, ?, 'batch', ?, 1, ?)";
      const body = JSON.stringify({ filename: "a.txt", mimeType: null, parts: [0] });
      old.write(insert, "f1", "k1", 10, body);
      old.write(insert, "f2", "k2", 20, body);
      old.write("INSERT INTO unfinished (key, owner, bytes, touched_at) VALUES ('f3', 'k1', 5, 1000)");
      old.write("INSERT INTO removed (key, at, tries) VALUES ('f4', 0, 3)");
      old.write("INSERT INTO vector_store (id) VALUES ('vs_1')");
      const files = new FileTable(new Schema(storage, FILE_DIRECTORY_VERSIONS));
      expect(files.find("f1", 0)).toMatchObject({ bytes: 10, filename: "a.txt", at: "rows" });
      expect(files.toRemove(10, 1)).toEqual([{ key: "f4", tries: 3, kept: null }]);
      expect(files.touch({ key: "f3", part: 0, bytes: 7 }, NO_LIMITS, 2_000)).toBe(true);
      const most = (bytes: number) => ({ ...NO_LIMITS, key: { files: 2, bytes } });
      files.check(most(17), "k1", { files: 0, bytes: 0 });
      expect(() => files.check(most(16), "k1", { files: 0, bytes: 0 })).toThrow("storage quota");
    });
  });
});

const NO_LIMIT = { files: null, bytes: null };
const NO_LIMITS = { tenant: NO_LIMIT, key: NO_LIMIT };

it("objects and the other programs have the same versions of tables", () => {
  expect(SCHEMA_VERSIONS).toEqual({
    Home: SCHEMA_VERSION,
    KeyDirectory: DIRECTORY_VERSIONS.length,
    Quota: QUOTA_VERSIONS.length,
    FileDirectory: FILE_DIRECTORY_VERSIONS.length,
    FileBytes: FILE_BYTES_VERSIONS.length,
    VectorStore: VECTOR_STORE_VERSIONS.length,
    Webhooks: WEBHOOK_VERSIONS.length,
    Batches: BATCH_VERSIONS.length,
    ResponseIndex: RESPONSE_INDEX_VERSIONS.length,
  });
});

const hour = (no: number) => no * 3_600_000;

it("usage drops old rows, but not vector stores' present sizes", async () => {
  await runInDurableObject(emptyObject(), (_, { storage }) => {
    const usage = new UsageStore(new Schema(storage, QUOTA_VERSIONS));
    const used = { model: "m", requests: 1, input: 1, cached: 0, output: 1, cost: 0 };
    usage.add("key_1", [used], hour(1), hour(1_000));
    const kept = [1, 70, 7];
    const deleted = [0, 50, 0];
    for (const [at, bytes] of kept.entries()) {
      usage.noteStore("vs_kept", bytes, hour(at + 1));
      // A repeated note changes nothing.
      for (let times = 0; times < 2; times += 1) usage.noteStore("vs_deleted", deleted[at] ?? 0, hour(at + 1));
    }
    const sizes = () => usage.storeBytes([1, 2, 3, 4, 2_000].map(hour));
    expect(sizes()).toEqual([0, 1, 120, 7, 7]);
    usage.add("key_1", [used], hour(1_900), hour(1_000));
    expect(sizes()).toEqual([0, 0, 0, 7, 7]);
    expect(usage.read({ from: 0, until: hour(2_000) }).map(({ start }) => start)).toEqual([hour(1_900)]);
    // A clock that goes back changes the present size.
    usage.noteStore("vs_kept", 9, hour(2));
    expect(sizes()).toEqual([0, 0, 0, 9, 9]);
  });
});

it("usage of an earlier version, with a row for each size of a vector store, is read", async () => {
  await runInDurableObject(emptyObject(), (_, { storage }) => {
    const old = new Schema(storage, QUOTA_VERSIONS.slice(0, 3));
    const sizes = [
      [1, "vs_a", 10],
      [1, "vs_b", 5],
      [3, "vs_a", 0],
      [4, "vs_c", 2],
      [5, "vs_b", 6],
    ] as const;
    for (const [at, store, bytes] of sizes) {
      const insert = `INSERT INTO used (start, key, kind, model, requests, input, cached, output, units, cost)
        VALUES (?, '', 'vector_stores', ?, 0, 0, 0, 0, ?, 0)`;
      old.write(insert, hour(at), store, bytes);
    }
    const usage = new UsageStore(new Schema(storage, QUOTA_VERSIONS));
    expect(usage.storeBytes([1, 2, 3, 4, 5, 6].map(hour))).toEqual([0, 15, 15, 5, 7, 8]);
    for (const [store, bytes] of Object.entries({ vs_a: 0, vs_b: 16, vs_c: 0 })) usage.noteStore(store, bytes, hour(9));
    expect(usage.storeBytes([9, 10].map(hour))).toEqual([8, 16]);
    expect(usage.read({ from: 0, until: hour(100) })).toEqual([]);
  });
});

describe("the audit log", () => {
  it("removes old rows, and the oldest rows of a kind with too many; the other kind's rows stay", async () => {
    await runInDurableObject(emptyObject(), (_, { storage }) => {
      const schema = new Schema(storage, DIRECTORY_VERSIONS);
      const log = new AuditLog(schema, 200);
      const event = { type: "response.deleted", actor: "key_1", tenant: "t", target: "resp_1" };
      log.add({ ...event, type: "api_key.created" }, "admin", 1_000, 10_000);
      for (let at = 0; at < 1_000; at += 1) log.add(event, "tenant", 2_000 + at, 10_000);
      const rows = log.list({ limit: 10_000 });
      expect(rows.length).toBeLessThanOrEqual(200 + 128 + 1);
      expect(rows.at(-1)?.type).toBe("api_key.created");
      const later = new AuditLog(schema);
      later.add(event, "tenant", 1_000_000, 10_000);
      expect(later.list({ limit: 10 })).toHaveLength(1);
    });
  });
});
