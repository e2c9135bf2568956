import { afterAll, beforeAll, expect, it } from "vitest";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { expectError } from "./expectations.ts";
import { ADMIN_KEY, call, create, longMessage, makeKey, newTenant, storageOf, usageOf } from "./key-support.ts";
import { eventually, type Gateway, gatewayAt } from "./support.ts";
import { ended, reached, unique } from "./turns.ts";

/** Keys and limits after a kill of the process. */

const STORED_BYTES = 1_000_000;

let worker: WorkerdProcess;
let gateway: Gateway;
beforeAll(async () => {
  const vllm = await serveSimulator();
  worker = await startWorkerd(
    {
      VLLM_BASE_URL: `${vllm.url}/v1`,
      ADMIN_KEY,
      KEY_CACHE_MS: "100",
      STORED_BYTES_PER_TENANT: String(STORED_BYTES),
    },
    { readsFormats: false },
  );
  gateway = gatewayAt(worker, vllm);
});
afterAll(() => gateway.close());

it("keys, limits and usage survive a kill: no client gets more", async () => {
  const key = await makeKey(gateway, newTenant(), { requests_per_minute: 100, max_concurrent_requests: 1 });
  const used = await makeKey(gateway, newTenant(), { budget: { tokens: 5_000, window: "total" } });
  expect((await create(gateway, used, { model: "simulator?words=100", max_output_tokens: 4_900 })).status).toBe(200);
  await eventually(() => usageOf(gateway, used));
  const input = unique("Held");
  const held = create(gateway, key, { model: "simulator?fault=stall_headers", input }).catch(() => undefined);
  await reached(gateway, input);
  await worker.restart();
  await held;
  // The dead request's slot is free when its isolate has been silent for a minute, and not before.
  expect((await create(gateway, key)).status).toBe(429);
  // The reservation was released, except the real usage.
  expect((await create(gateway, used, { max_output_tokens: 4_950 })).status).toBe(429);
  expect((await create(gateway, used, { max_output_tokens: 4_000 })).status).toBe(200);
});

it("a run that resumes after a kill reports its usage, and releases its reservation", async () => {
  const key = await makeKey(gateway, newTenant(), { max_background_runs: 1, tokens_per_minute: 100_000 });
  const client = gateway.client({ apiKey: key.value });
  const model = "simulator?tps=50&words=60";
  const { id } = await client.responses.create({ model, input: unique("Run"), background: true });
  await eventually(async () => (await client.responses.retrieve(id)).status === "in_progress");
  await worker.restart();
  const { usage, status } = await ended({ openai: client, vllm: gateway.vllm }, id);
  expect(status).toBe("completed");
  const told = await eventually(() => usageOf(gateway, key));
  expect(told).toMatchObject({ num_model_requests: 1, output_tokens: usage?.output_tokens });
  const next = await call(
    gateway,
    "POST",
    "/v1/responses",
    { model: "simulator", input: "Hi", background: true },
    key.value,
  );
  expect(next.status).toBe(200);
});

it("a run without limits that resumes after a kill counts once", async () => {
  const key = await makeKey(gateway, newTenant());
  const client = gateway.client({ apiKey: key.value });
  const model = "simulator?tps=50&words=60";
  const { id } = await client.responses.create({ model, input: unique("Run"), background: true });
  await eventually(async () => (await client.responses.retrieve(id)).status === "in_progress");
  await worker.restart();
  const { usage } = await ended({ openai: client, vllm: gateway.vllm }, id);
  const told = await eventually(() => usageOf(gateway, key));
  expect(told).toMatchObject({ num_model_requests: 1, output_tokens: usage?.output_tokens });
});

it("stored data and its counts survive a kill, also under STORED_BYTES_PER_TENANT for a tenant without a limit", async () => {
  const key = await makeKey(gateway, newTenant());
  const converse = () => call(gateway, "POST", "/v1/conversations", longMessage(100_000), key.value);
  const kept: string[] = [];
  const reported = () =>
    eventually(async () =>
      (await storageOf(gateway, key)).find(({ num_conversations: count }) => count === kept.length),
    );
  let answer = await converse();
  for (; answer.ok; answer = await converse()) kept.push(((await answer.json()) as { id: string }).id);
  // Requests reserve more than they store, until their homes have reported.
  await reported();
  for (answer = await converse(); answer.ok; answer = await converse()) {
    kept.push(((await answer.json()) as { id: string }).id);
    await reported();
  }
  const error = { status: 429, code: "storage_quota_exceeded", message: new RegExp(`${STORED_BYTES} bytes`) };
  await expectError(answer, error);
  const full = await reported();
  expect(full).toMatchObject({ num_conversations: kept.length, limits: { stored_bytes: STORED_BYTES } });
  expect(full?.usage_bytes).toBeGreaterThan(STORED_BYTES - 110_000);
  await worker.restart();
  expect(await storageOf(gateway, key)).toEqual([full]);
  await expectError(await converse(), error);
  for (const id of kept.splice(0, 3)) await call(gateway, "DELETE", `/v1/conversations/${id}`, undefined, key.value);
  await reported();
  for (let count = 0; count < 2; count += 1) expect((await converse()).status).toBe(200);
  // The amounts that may not have been reported yet.
  expect((await create(gateway, key)).status).toBe(200);
  await worker.restart();
  const { usage_bytes: bytes } = await eventually(async () => {
    const found = await storageOf(gateway, key);
    return found.find(
      ({ num_conversations, num_responses }) => num_conversations === kept.length + 2 && num_responses === 1,
    );
  });
  expect(bytes).toBeLessThan(full?.usage_bytes ?? 0);
});
