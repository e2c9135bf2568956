import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { loadConfig, type Variables } from "../../src/config/index.ts";
import { grants, hasHost, hasModel, policyOf, restrictedConfig } from "../../src/contract/grants.ts";
import { isMinted, isMintedForm, mintKey, newMint } from "../../src/store/deployment/keys/api-keys.ts";
import { AgeingCache } from "../../src/store/deployment/keys/key-cache.ts";
import { AuditLog, DIRECTORY_TABLES } from "../../src/store/deployment/keys/key-directory.ts";
import { QUOTA_TABLES } from "../../src/store/limits/quota-object.ts";
import { UsageStore } from "../../src/store/limits/usage.ts";
import { Schema } from "../../src/store/objects/schema.ts";
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

const hour = (no: number) => no * 3_600_000;

it("usage has rows of at most a hundred models that nothing has used", async () => {
  await runInDurableObject(emptyObject(), (_, { storage }) => {
    const usage = new UsageStore(new Schema(storage, QUOTA_TABLES));
    const entry = { requests: 0, input: 0, cached: 0, output: 0, cost: 0 };
    const ended = { errors: 1, ms: 0, durations: {}, firstTokens: {} };
    for (let no = 0; no < 300; no += 1) usage.add("key_1", [{ ...entry, model: `m${no}`, ended }], hour(1), hour(9));
    usage.add("key_1", [{ ...entry, model: "real", requests: 1 }], hour(1), hour(9));
    usage.add("key_1", [{ ...entry, model: "real", ended }], hour(1), hour(9));
    const rows = usage.read({ from: 0, until: hour(2) });
    expect(rows.length).toBe(102);
    const errors = Object.fromEntries(rows.map((row) => [row.model, row.ended?.errors]));
    expect([errors.m0, errors.other, errors.real]).toEqual([1, 200, 1]);
  });
});

it("usage drops old rows, but not vector stores' present sizes", async () => {
  await runInDurableObject(emptyObject(), (_, { storage }) => {
    const usage = new UsageStore(new Schema(storage, QUOTA_TABLES));
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

describe("the audit log", () => {
  it("removes old rows, and the oldest rows of a kind with too many; the other kind's rows stay", async () => {
    await runInDurableObject(emptyObject(), (_, { storage }) => {
      const schema = new Schema(storage, DIRECTORY_TABLES);
      const log = new AuditLog(schema, 200);
      const event = { type: "response.deleted" as const, actor: "key_1", tenant: "t", target: "resp_1" };
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
