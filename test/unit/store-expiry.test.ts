import { runDurableObjectAlarm } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { VectorStore } from "../../src/store/tenant/vector-stores/vector-store.ts";

/** Vector stores that expire after days. */

const DAY_MS = 86_400_000;
const { VECTOR_STORES } = env as unknown as { VECTOR_STORES: DurableObjectNamespace<VectorStore> };

/** Each test has its own store, because the isolate caches objects. */
let made = 0;

async function newStore(days: number | null) {
  const id = `vs_${++made}`;
  const stub = VECTOR_STORES.getByName(`tenant:${id}`);
  const expiresAfter = days === null ? null : ({ anchor: "last_active_at", days } as const);
  const owner = { keyId: "key", tenant: "tenant", policy: undefined } as never;
  await stub.create({ id, name: "", description: null, metadata: null, expiresAfter }, [], owner);
  return stub;
}

const search = (stub: DurableObjectStub<VectorStore>) =>
  stub.search({
    queries: [{ text: "owls", embedding: undefined }],
    model: undefined,
    filters: undefined,
    weights: { embedding: 1, text: 1 },
    limit: 10,
    isExplained: undefined,
  });

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date"] });
});
afterEach(() => {
  vi.useRealTimers();
});

const later = (ms: number) => vi.setSystemTime(Date.now() + ms);

it("a store expires when it was unused for its number of days, and then refuses searches", async () => {
  const store = await newStore(2);
  later(2 * DAY_MS - 1_000);
  expect(await store.object()).toMatchObject({ status: "completed" });
  later(1_000);
  expect(await store.object()).toMatchObject({ status: "expired", file_counts: { total: 0 } });
  expect(await search(store)).toMatchObject({ ok: false, error: { code: "vector_store_expired" } });
});

it("a search extends its life by the same number of days, and a retrieval does not", async () => {
  const store = await newStore(1);
  later(DAY_MS - 1_000);
  expect(await search(store)).toEqual({ ok: true, value: [] });
  later(DAY_MS - 1_000);
  expect(await store.object()).toMatchObject({ status: "completed" });
  later(1_000);
  expect(await store.object()).toMatchObject({ status: "expired" });
});

it("its alarm expires it without a request", async () => {
  const store = await newStore(1);
  later(DAY_MS);
  expect(await runDurableObjectAlarm(store)).toBe(true);
  expect(await store.facts()).toMatchObject({ isExpired: true });
});

it("a store without a term does not expire", async () => {
  const store = await newStore(null);
  later(10_000 * DAY_MS);
  expect(await store.object()).toMatchObject({ status: "completed", expires_at: null });
});
