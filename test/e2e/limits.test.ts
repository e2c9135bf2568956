import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Grants } from "../../src/contract/grants.ts";
import { errorOf, expectError, readStream, rejection } from "./expectations.ts";
import {
  ask,
  call,
  create,
  incompressible,
  longMessage,
  type MadeKey,
  makeKey,
  newTenant,
  ROOT,
  startWithKeys,
  storageOf,
} from "./key-support.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, lastPrompt } from "./support.ts";
import { ended, promptsFor, reached, unique } from "./turns.ts";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startWithKeys({
    MODEL_PRICES: JSON.stringify({ "*": { input: 1, output: 2 } }),
    RESERVED_OUTPUT_TOKENS: "100",
  });
});
afterAll(() => gateway.close());

const STALLED = "simulator?fault=stall_headers";

function limited(limits: Partial<Grants>): Promise<MadeKey> {
  return makeKey(gateway, newTenant(), limits);
}

async function statuses(answers: Promise<Response>[]): Promise<Record<number, number>> {
  const counts: Record<number, number> = {};
  for (const answer of await Promise.all(answers)) {
    counts[answer.status] = (counts[answer.status] ?? 0) + 1;
    await answer.text();
  }
  return counts;
}

/** The headers with limits. */
function told({ headers }: Response): Record<string, string> {
  return Object.fromEntries([...headers].filter(([name]) => /^x-ratelimit|^retry-after|^x-should/.test(name)));
}

describe("200 requests at once", () => {
  it("under a limit of 100 a minute: 100 are admitted", async () => {
    const key = await limited({ requests_per_minute: 100 });
    expect(await statuses(Array.from({ length: 200 }, () => create(gateway, key)))).toEqual({ 200: 100, 429: 100 });
    expect((await create(gateway, key)).status).toBe(429);
  });

  it("of two keys of a tenant with a limit of 100 a minute: 100 are admitted", async () => {
    const tenant = newTenant();
    await ask(gateway, "POST", `/v1/admin/tenants/${tenant}`, { limits: { requests_per_minute: 100 } });
    const keys = [await makeKey(gateway, tenant), await makeKey(gateway, tenant, { requests_per_minute: 80 })];
    const answers = Array.from({ length: 200 }, (_, index) => create(gateway, keys[index % 2] ?? ""));
    expect(await statuses(answers)).toEqual({ 200: 100, 429: 100 });
  });

  it("under a limit of tokens: as many are admitted as their reservations allow, and more when they have ended", async () => {
    const key = await limited({ tokens_per_minute: 10_000 });
    const input = unique("Tokens");
    const body = { model: STALLED, input, max_output_tokens: 900, stream: true };
    const answers = Array.from({ length: 200 }, () => create(gateway, key, body));
    // Each reserves 900 and a short prompt. Eleven of them would exceed the limit.
    const refused: Response[] = [];
    await Promise.all(
      answers.map(async (answer) => {
        const response = await answer;
        if (response.status === 429) refused.push(response);
        if (refused.length === 190) for (const { release } of promptsFor(gateway, input)) release();
      }),
    );
    expect(promptsFor(gateway, input)).toHaveLength(10);
    expect(refused).toHaveLength(190);
    await Promise.all((await Promise.all(answers)).map((each) => each.text()));
    // Each has used only a few tokens of its 900.
    await eventually(async () => (await create(gateway, key, { max_output_tokens: 5_000 })).status === 200);
  });

  it("under a limit of 5 at a time: 5 are admitted, and others as soon as these have ended", async () => {
    const key = await limited({ max_concurrent_requests: 5 });
    const input = unique("Slots");
    let refused = 0;
    const answers = Array.from({ length: 200 }, async () => {
      const answer = await create(gateway, key, { model: STALLED, input });
      if (answer.status === 429) refused += 1;
      if (refused === 195) for (const { release } of promptsFor(gateway, input)) release();
      return answer;
    });
    expect(await statuses(answers)).toEqual({ 200: 5, 429: 195 });
    expect(await statuses(Array.from({ length: 5 }, () => create(gateway, key)))).toEqual({ 200: 5 });
  });
});

describe("a limit of each end user", () => {
  const perUser = (limits: object, more: Partial<Grants> = {}) => limited({ ...more, end_user: limits });
  const statusesOf = async (answers: Response[]) => answers.map(({ status }) => status);

  it("applies to each by its own id, is in its headers, and names the end user and the key", async () => {
    const key = await perUser({ requests_per_minute: 2 });
    const asked = (fields: object) => create(gateway, key, fields);
    const first = await asked({ safety_identifier: "alice" });
    expect(told(first)).toMatchObject({ "x-ratelimit-limit-requests": "2", "x-ratelimit-remaining-requests": "1" });
    // The same id in the older field is the same end user.
    expect((await asked({ user: "alice" })).status).toBe(200);
    await expectError(await asked({ safety_identifier: "alice", user: "bob" }), {
      status: 429,
      code: "rate_limit_exceeded",
      type: "requests",
      message: new RegExp(`end user 'alice' of key ${key.id} on requests per min`),
    });
    const others = [asked({ user: "bob" }), asked({ safety_identifier: "carol" }), asked({}), asked({}), asked({})];
    expect(await statusesOf(await Promise.all(others))).toEqual([200, 200, 200, 200, 200]);
  });

  it("applies in the background, over a WebSocket and to vLLM's own endpoints, and to all keys of a tenant with the limit", async () => {
    const tenant = newTenant();
    await ask(gateway, "POST", `/v1/admin/tenants/${tenant}`, { limits: { end_user: { requests_per_minute: 2 } } });
    const [one, other] = [await makeKey(gateway, tenant), await makeKey(gateway, tenant)];
    const user = { safety_identifier: "dave" };
    expect((await create(gateway, one, { ...user, background: true })).status).toBe(200);
    expect((await create(gateway, other, user)).status).toBe(200);
    const refused = [
      create(gateway, one, { ...user, background: true }),
      create(gateway, other, { ...user, stream: true }),
      call(gateway, "POST", "/v1/responses/input_tokens", { model: "simulator", input: "Hello!", ...user }, one.value),
    ];
    for (const answer of await Promise.all(refused))
      await expectError(answer, { status: 429, message: new RegExp(`end user 'dave' of organization ${tenant}`) });
    const socket = await SocketClient.open(gateway, { headers: { authorization: `Bearer ${one.value}` } });
    expect((await socket.turn({ input: "Hello!", ...user })).last).toMatchObject({
      type: "error",
      status: 429,
      error: { code: "rate_limit_exceeded", message: expect.stringContaining("end user 'dave'") },
    });
    // Each turn of a connection has its own end user.
    const turnOf = async () => (await socket.turn({ input: "Hello!", safety_identifier: "erik" })).last;
    expect([(await turnOf()).type, (await turnOf()).type]).toEqual(["response.completed", "response.completed"]);
    expect(await turnOf()).toMatchObject({ type: "error", status: 429 });
    await socket.close();
  });

  it("counts used tokens, also in the background", async () => {
    const key = await perUser({ tokens_per_minute: 1_000 });
    const body = { safety_identifier: "erin", max_output_tokens: 900 };
    expect((await create(gateway, key, { ...body, background: true })).status).toBe(200);
    // It ends after few of the 900 tokens.
    await eventually(async () => (await create(gateway, key, body)).status === 200);
    await expectError(await create(gateway, key, { ...body, max_output_tokens: 2_000 }), {
      status: 429,
      type: "tokens",
      message: /end user 'erin'.*too large/,
    });
  });

  it("does not count requests that the key's own limit refuses, and the other way round", async () => {
    const key = await perUser({ requests_per_minute: 2 }, { requests_per_minute: 3 });
    const asked = (user: string) => create(gateway, key, { user });
    expect(await statusesOf([await asked("frank"), await asked("frank"), await asked("frank")])).toEqual([
      200, 200, 429,
    ]);
    expect(await statusesOf([await asked("grace"), await asked("grace")])).toEqual([200, 429]);
    await ask(gateway, "POST", `/v1/admin/keys/${key.id}`, { limits: { end_user: { requests_per_minute: 2 } } });
    await eventually(async () => (await asked("grace")).status === 200);
  });
});

describe("a limit that is reached", () => {
  it("is in the headers and messages that clients read", async () => {
    const key = await limited({ requests_per_minute: 2, tokens_per_minute: 10_000 });
    const first = await create(gateway, key);
    expect(told(first)).toMatchObject({
      "x-ratelimit-limit-requests": "2",
      "x-ratelimit-remaining-requests": "1",
      "x-ratelimit-limit-tokens": "10000",
    });
    expect(Number(first.headers.get("x-ratelimit-remaining-tokens"))).toBeGreaterThan(9_000);
    expect(Number((await create(gateway, key)).headers.get("x-ratelimit-remaining-requests"))).toBe(0);
    const refused = await create(gateway, key);
    expect(told(refused)).toMatchObject({
      "x-ratelimit-remaining-requests": "0",
      "x-ratelimit-reset-requests": expect.stringMatching(/^(\d+m\d+s|[\d.]+s|\d+ms)$/),
      "retry-after": expect.stringMatching(/^\d+$/),
      "retry-after-ms": expect.stringMatching(/^\d+$/),
      "x-should-retry": "true",
    });
    const error = await errorOf(refused);
    expect(error).toMatchObject({ type: "requests", code: "rate_limit_exceeded", param: null });
    // Codex's own pattern.
    const [, seconds] = /try again in\s*(\d+(?:\.\d+)?)\s*(?:s|ms|seconds?)/i.exec(error.message) ?? [];
    expect(Number(seconds)).toBeGreaterThan(0);
    expect(Number(seconds)).toBeLessThanOrEqual(61);
  });

  it.each<[string, Partial<Grants>, object]>([
    ["no requests", { requests_per_minute: 0 }, {}],
    ["no tokens", { tokens_per_minute: 0 }, {}],
    ["none at a time", { max_concurrent_requests: 0 }, {}],
    ["no money", { budget: { usd: 0, window: "month" } }, {}],
    ["no runs", { max_background_runs: 0 }, { background: true }],
  ])("of zero (%s) admits no request, and is final: the SDK does not try again", async (_, limits, body) => {
    const key = await limited(limits);
    let asked = 0;
    const client = gateway.client({
      apiKey: key.value,
      maxRetries: 3,
      fetch: (...given) => {
        asked += 1;
        return gateway.fetch(...given);
      },
    });
    const error = await rejection(client.responses.create({ model: "simulator", input: "Hello!", ...body }));
    expect(error).toBeInstanceOf(OpenAI.RateLimitError);
    expect(error).toMatchObject({ status: 429, code: "insufficient_quota", type: "insufficient_quota" });
    expect(asked).toBe(1);
  });

  it("and is too small for the request says so, and is final", async () => {
    const answer = await create(gateway, await limited({ tokens_per_minute: 100 }), { max_output_tokens: 200 });
    expect(told(answer)["x-should-retry"]).toBe("false");
    await expectError(answer, { status: 429, code: "rate_limit_exceeded", type: "tokens", message: /too large/ });
  });

  it("refuses a stream before it begins, a count of tokens, a compaction and a request with an idempotency key, too", async () => {
    const key = await limited({ requests_per_minute: 1 });
    expect((await create(gateway, key)).status).toBe(200);
    const ways: Promise<Response>[] = [
      create(gateway, key, { stream: true }),
      create(gateway, key, { background: true }),
      call(gateway, "POST", "/v1/responses/input_tokens", { model: "simulator", input: "Hello!" }, key.value),
      call(gateway, "POST", "/v1/responses/compact", { model: "simulator", input: "Hello!" }, key.value),
      gateway.post({ input: "Hello!" }, { authorization: `Bearer ${key.value}`, "idempotency-key": unique("key") }),
    ];
    for (const answer of await Promise.all(ways))
      await expectError(answer, { status: 429, code: "rate_limit_exceeded" });
  });

  it("is an error frame on a WebSocket, with its headers, and leaves the connection open", async () => {
    const key = await limited({ max_concurrent_requests: 1 });
    const socket = await SocketClient.open(gateway, { headers: { authorization: `Bearer ${key.value}` } });
    const input = unique("Socket");
    socket.create({ model: STALLED, input, stream_id: "one" });
    const release = await reached(gateway, input);
    const { last } = await socket.turn({ input: "Hello!", stream_id: "two" });
    expect(last).toMatchObject({
      type: "error",
      status: 429,
      error: { code: "rate_limit_exceeded", headers: { "retry-after-ms": expect.any(String) } },
    });
    release();
    expect((await socket.ended("one")).last.type).toBe("response.completed");
    expect((await socket.turn({ input: "Hello!", stream_id: "two" })).last.type).toBe("response.completed");
    await socket.close();
  });

  it("only by the prompt's history is a 429, too, and nothing reaches the model", async () => {
    const key = await limited({ tokens_per_minute: 3_000 });
    const client = gateway.client({ apiKey: key.value });
    const long = unique("word ".repeat(1_200));
    const { id } = await client.responses.create({ model: "simulator?words=1", input: long, max_output_tokens: 16 });
    const other = await makeKey(gateway, key.tenant, { tokens_per_minute: 1_000 });
    const input = unique("And now?");
    const answer = await create(gateway, other, { input, previous_response_id: id, max_output_tokens: 16 });
    await expectError(answer, { status: 429, type: "tokens", code: "rate_limit_exceeded" });
    expect(promptsFor(gateway, input)).toEqual([]);
    expect((await create(gateway, other, { input, max_output_tokens: 16 })).status).toBe(200);
  });
});

it("counts a run's history, too, as soon as its home has read it", async () => {
  const tenant = newTenant();
  const [plain, key] = [await makeKey(gateway, tenant), await makeKey(gateway, tenant, { tokens_per_minute: 3_000 })];
  const long = "word ".repeat(1_600);
  const first = await gateway
    .client({ apiKey: plain.value })
    .responses.create({ model: "simulator?words=1", input: long });
  const client = gateway.client({ apiKey: key.value });
  const body = { input: unique("Goes on"), max_output_tokens: 100 };
  const run = { ...body, model: STALLED, background: true, previous_response_id: first.id };
  const { id } = await client.responses.create(run);
  const release = await reached(gateway, body.input);
  // About 900 of 3,000 are left.
  const refused = await eventually(async () => {
    const answer = await create(gateway, key, { max_output_tokens: 1_500 });
    return answer.status === 429 ? answer : undefined;
  });
  await expectError(refused, { status: 429, type: "tokens" });
  release();
  await ended({ openai: client, vllm: gateway.vllm }, id);
});

describe("a budget", () => {
  it("in tokens is used up by real usage, and then final", async () => {
    const key = await limited({ budget: { tokens: 400, window: "day" } });
    const outcomes: number[] = [];
    for (let turn = 0; turn < 50; turn += 1) {
      const answer = await create(gateway, key, { input: "word ".repeat(50), max_output_tokens: 60 });
      outcomes.push(answer.status);
      if (answer.status === 429) {
        expect(told(answer)).toEqual({ "x-should-retry": "false" });
        await expectError(answer, { status: 429, code: "insufficient_quota", message: /resets at/ });
        break;
      }
      await answer.text();
    }
    // Each uses about 110 tokens, and reserves about 125.
    expect(outcomes.filter((status) => status === 200).length).toBeGreaterThanOrEqual(2);
    expect(outcomes.filter((status) => status === 200).length).toBeLessThanOrEqual(4);
    expect(outcomes.at(-1)).toBe(429);
    const lines = () =>
      gateway
        .logs()
        .split("\n")
        .filter((line) => line.includes('"limit_nearly_used"') && line.includes(key.id));
    await eventually(() => lines().length > 0);
    expect(lines()).toEqual([expect.stringContaining('"limit":"budget_tokens"')]);
  });

  it("in money counts the model's price", async () => {
    // The budget is 300 tokens of input, or 150 of output.
    const key = await limited({ budget: { usd: 0.0003, window: "total" } });
    expect((await create(gateway, key, { max_output_tokens: 100 })).status).toBe(200);
    await expectError(await create(gateway, key, { max_output_tokens: 200 }), {
      status: 429,
      code: "insufficient_quota",
    });
  });

  it("counts the output until a client's disconnection", async () => {
    const key = await limited({});
    const client = gateway.client({ apiKey: key.value });
    const stream = await client.responses.create({
      model: "simulator?tps=200&words=100000",
      input: "Hello!",
      stream: true,
    });
    let deltas = 0;
    for await (const { type } of stream) {
      if (type === "response.output_text.delta") deltas += 1;
      if (deltas === 20) break;
    }
    const used = await eventually(async () => (await usageOf(key))[0]);
    expect(used.output_tokens).toBeGreaterThanOrEqual(20);
    expect(used.input_tokens).toBeGreaterThan(0);
  });
});

interface UsageResult {
  input_tokens: number;
  output_tokens: number;
  num_model_requests: number;
  project_id: string | null;
  api_key_id: string | null;
  model: string | null;
  cost_usd: number;
}

async function usageOf(key: MadeKey, query = "", bearer = key.value): Promise<UsageResult[]> {
  const from = Math.floor(Date.now() / 1000) - 86_400;
  const answer = await call(
    gateway,
    "GET",
    `/v1/organization/usage/completions?start_time=${from}${query}`,
    undefined,
    bearer,
  );
  expect(answer.status).toBe(200);
  const { data } = (await answer.json()) as { data: { results: UsageResult[] }[] };
  return data.flatMap(({ results }) => results);
}

describe("usage", () => {
  it("is the tenant's own for its key, by key and model, and every tenant's for a root key", async () => {
    const tenant = newTenant();
    const [a, b] = [await makeKey(gateway, tenant, {}), await makeKey(gateway, tenant, { requests_per_minute: 100 })];
    const stranger = await makeKey(gateway, newTenant(), {});
    const usages = [];
    for (const key of [a, a, b, stranger]) {
      const { usage } = await gateway
        .client({ apiKey: key.value })
        .responses.create({ model: "simulator", input: "Hello!" });
      usages.push(usage);
    }
    const each = usages[0];
    const of = (turns: number) => ({
      num_model_requests: turns,
      input_tokens: turns * (each?.input_tokens ?? 0),
      output_tokens: turns * (each?.output_tokens ?? 0),
    });
    const told = await eventually(async () => {
      const rows = await usageOf(a, "&group_by=api_key_id,model");
      return rows.reduce((sum, row) => sum + row.num_model_requests, 0) === 3 ? rows : undefined;
    });
    expect(told.find(({ api_key_id: id }) => id === a.id)).toMatchObject({
      ...of(2),
      model: "simulator",
      project_id: null,
    });
    expect(told.find(({ api_key_id: id }) => id === b.id)).toMatchObject(of(1));
    expect(await usageOf(a)).toMatchObject([{ ...of(3), api_key_id: null, model: null }]);
    const cost = ((each?.input_tokens ?? 0) + 2 * (each?.output_tokens ?? 0)) * 3e-6;
    expect((await usageOf(a))[0]?.cost_usd).toBeCloseTo(cost, 9);
    const costs = gateway.client({ apiKey: a.value, adminAPIKey: a.value }).admin.organization.usage.costs({
      start_time: Math.floor(Date.now() / 1000) - 86_400,
      group_by: ["line_item"],
    });
    const items = (await costs).data.flatMap(({ results }) => results);
    expect(items).toMatchObject([
      { object: "organization.costs.result", line_item: "simulator", quantity_unit: "tokens", project_id: null },
    ]);
    const [item] = items;
    expect(item?.object === "organization.costs.result" && item.amount?.value).toBeCloseTo(cost, 9);
    // A tenant cannot request another's usage.
    expect(await usageOf(a, `&project_ids=${stranger.tenant}&group_by=project_id`)).toMatchObject([
      { project_id: tenant },
    ]);
    const all = await eventually(async () => {
      const rows = await usageOf(a, `&project_ids=${tenant},${stranger.tenant}&group_by[]=project_id`, ROOT);
      return rows.length === 2 ? rows : undefined;
    });
    expect(all.find(({ project_id: id }) => id === stranger.tenant)).toMatchObject(of(1));
    expect((await usageOf(a, "&group_by=project_id", ROOT)).map(({ project_id: id }) => id)).toContain(tenant);
  });

  it("of vector stores is their size, by the hour, until they are deleted", async () => {
    const { value } = await limited({});
    const client = gateway.client({ apiKey: value, adminAPIKey: value });
    const sizeNow = async () => {
      const start_time = Math.floor(Date.now() / 1000) - 3_600;
      const usage = { start_time, bucket_width: "1h", group_by: ["project_id"] } as const;
      const { data } = await client.admin.organization.usage.vectorStores({ ...usage, group_by: [...usage.group_by] });
      const [result] = data.at(-1)?.results ?? [];
      if (!result) return 0;
      return result.object === "organization.usage.vector_stores.result" ? result.usage_bytes : Number.NaN;
    };
    expect(await sizeNow()).toBe(0);
    const file = await client.files.create({ file: new File(["Owls hoot."], "owls.txt"), purpose: "assistants" });
    const { id } = await client.vectorStores.create({ file_ids: [file.id] });
    const size = await eventually(async () => (await sizeNow()) || undefined);
    expect(size).toBe((await client.vectorStores.retrieve(id)).usage_bytes);
    const other = await client.vectorStores.create({});
    await client.vectorStores.files.createAndPoll(other.id, { file_id: file.id }, { pollIntervalMs: 20 });
    await eventually(async () => (await sizeNow()) === 2 * size);
    await client.vectorStores.delete(id);
    expect(await sizeNow()).toBe(size);
    await client.vectorStores.files.delete(file.id, { vector_store_id: other.id });
    await eventually(async () => (await sizeNow()) === 0);
  });

  it("of runs is reported by their homes, and their reservations end with them", async () => {
    const key = await limited({ max_background_runs: 1, tokens_per_minute: 100_000 });
    const client = gateway.client({ apiKey: key.value });
    const input = unique("Run");
    const first = await client.responses.create({ model: STALLED, input, background: true });
    const release = await reached(gateway, input);
    await expectError(await create(gateway, key, { background: true }), { status: 429, code: "rate_limit_exceeded" });
    // A foreground turn is not a run.
    expect((await create(gateway, key)).status).toBe(200);
    release();
    const { usage } = await ended({ openai: client, vllm: gateway.vllm }, first.id);
    // The home of the first run reports its end after the run's last event.
    const second = await eventually(async () => {
      const answer = await create(gateway, key, { background: true });
      return answer.status === 429 ? undefined : answer;
    });
    expect(second.status).toBe(200);
    const { id } = (await second.json()) as { id: string };
    await ended({ openai: client, vllm: gateway.vllm }, id);
    const told = await eventually(async () => {
      const rows = await usageOf(key, "&group_by=model");
      return rows.reduce((sum, row) => sum + row.num_model_requests, 0) === 3 ? rows : undefined;
    });
    expect(told.find(({ model }) => model === STALLED)).toMatchObject({
      input_tokens: usage?.input_tokens,
      output_tokens: usage?.output_tokens,
    });
  });

  it.each([
    ["", "start_time"],
    ["start_time=now", "start_time"],
    ["start_time=0&bucket_width=1m", "bucket_width"],
    ["start_time=0&group_by=user_id", "group_by[0]"],
    ["start_time=0&limit=32", "limit"],
    ["start_time=0&page=3", "page"],
  ])("with '%s' is a 400", async (query, param) => {
    const answer = await call(gateway, "GET", `/v1/organization/usage/completions?${query}`);
    await expectError(answer, { status: 400, param });
  });
});

describe("a limit of storage", () => {
  const LIMIT = 2_000_000;

  const converse = (key: MadeKey, length = 100_000) =>
    call(gateway, "POST", "/v1/conversations", longMessage(length), key.value);

  /** Makes a key with these limits, either its own or its tenant's. */
  async function limitedAs(whose: string, limits: Partial<Grants>): Promise<MadeKey> {
    if (whose === "key") return limited(limits);
    const tenant = newTenant();
    await ask(gateway, "POST", `/v1/admin/tenants/${tenant}`, { limits });
    return makeKey(gateway, tenant);
  }

  /** Waits until homes have reported these amounts, which they do within seconds, and gives all. */
  const reported = (key: MadeKey, amounts: Partial<Record<"num_conversations" | "num_responses", number>>) =>
    eventually(async () => {
      const [storage] = await storageOf(gateway, key);
      const isReported = Object.entries(amounts).every(
        ([name, amount]) => storage?.[name as keyof typeof amounts] === amount,
      );
      return isReported ? storage : undefined;
    });

  const exceeded = (limit: string) => ({
    status: 429,
    type: "insufficient_quota",
    code: "storage_quota_exceeded",
    message: new RegExp(`'${limit}'`),
  });

  it.each(["key", "tenant"])(
    "in bytes, of a %s, stops conversations, which continue after deletions",
    async (whose) => {
      const key = await limitedAs(whose, { stored_bytes: LIMIT });
      const kept: string[] = [];
      const refused: Response[] = [];
      for (let count = 0; count < 40; count += 1) {
        const answer = await converse(key);
        if (answer.ok) kept.push(((await answer.json()) as { id: string }).id);
        else refused.push(answer);
      }
      // Requests reserve more than they store, until their homes have reported.
      await reported(key, { num_conversations: kept.length });
      let last = await converse(key);
      for (; last.ok; last = await converse(key)) {
        kept.push(((await last.json()) as { id: string }).id);
        await reported(key, { num_conversations: kept.length });
      }
      expect(told(last)).toEqual({ "x-should-retry": "false" });
      for (const answer of [...refused, last]) await expectError(answer, exceeded("stored_bytes"));
      const storage = await reported(key, { num_conversations: kept.length });
      // Creates as many as fit. The rest is not enough for another one.
      expect(storage).toMatchObject({ num_conversations: kept.length, num_responses: 0 });
      expect(storage?.usage_bytes).toBeLessThanOrEqual(LIMIT);
      expect(storage?.usage_bytes).toBeGreaterThan(LIMIT - 110_000);
      await expectError(await converse(key, 2_100_000), { ...exceeded("stored_bytes"), status: 413 });

      const [first = "", second = ""] = kept;
      const items = `/v1/conversations/${first}/items`;
      for (const body of [{ input: incompressible(100_000) }, { input: "Short", max_output_tokens: 100_000 }]) {
        for (const way of [
          {},
          { stream: true },
          { background: true },
          { conversation: first },
          { conversation: first, store: false },
        ]) {
          await expectError(await create(gateway, key, { ...body, ...way }), exceeded("stored_bytes"));
        }
      }
      await expectError(await call(gateway, "POST", items, longMessage(100_000), key.value), exceeded("stored_bytes"));
      for (const path of [`/v1/conversations/${first}`, items]) {
        expect((await call(gateway, "GET", path, undefined, key.value)).status).toBe(200);
      }
      expect((await create(gateway, key, { input: incompressible(100_000), store: false })).status).toBe(200);

      for (const id of [first, second]) {
        expect((await call(gateway, "DELETE", `/v1/conversations/${id}`, undefined, key.value)).status).toBe(200);
      }
      await reported(key, { num_conversations: kept.length - 2 });
      expect(await statuses([converse(key)])).toEqual({ 200: 1 });
      expect((await create(gateway, key, { model: "simulator?words=1", input: incompressible(50_000) })).status).toBe(
        200,
      );
      last = await converse(key);
      while (last.ok) last = await converse(key);
      await expectError(last, exceeded("stored_bytes"));
      expect((await storageOf(gateway, key))[0]?.usage_bytes).toBeLessThanOrEqual(LIMIT);
    },
  );

  it.each(["key", "tenant"])(
    "in responses, of a %s, counts each of them, however it was created, until its deletion",
    async (whose) => {
      const key = await limitedAs(whose, { stored_responses: 3 });
      const client = gateway.client({ apiKey: key.value });
      const run = await client.responses.create({ model: "simulator", input: "One", background: true });
      await ended({ openai: client, vllm: gateway.vllm }, run.id);
      const { id } = await client.responses.create({ model: "simulator", input: "Two" });
      await readStream(await create(gateway, key, { stream: true }));
      for (const body of [{}, { stream: true }, { background: true }, { previous_response_id: id }]) {
        await expectError(await create(gateway, key, body), exceeded("stored_responses"));
      }
      expect((await create(gateway, key, { store: false, previous_response_id: id })).status).toBe(200);
      expect((await client.responses.retrieve(run.id)).status).toBe("completed");
      await reported(key, { num_responses: 3 });
      await client.responses.delete(id);
      await reported(key, { num_responses: 2 });
      expect(await statuses([create(gateway, key)])).toEqual({ 200: 1 });
      await expectError(await create(gateway, key), exceeded("stored_responses"));
      await reported(key, { num_responses: 3 });
    },
  );

  it.each(["key", "tenant"])(
    "in conversations, of a %s, does not stop their turns, and a deletion permits another one",
    async (whose) => {
      const key = await limitedAs(whose, { stored_conversations: 2 });
      const client = gateway.client({ apiKey: key.value });
      const { id } = await client.conversations.create();
      await client.conversations.create();
      await expectError(await converse(key, 10), exceeded("stored_conversations"));
      await client.responses.create({ model: "simulator", input: "Hello!", conversation: id });
      await reported(key, { num_conversations: 2 });
      await client.conversations.delete(id);
      await reported(key, { num_conversations: 1 });
      expect(await statuses([converse(key, 10)])).toEqual({ 200: 1 });
      await expectError(await converse(key, 10), exceeded("stored_conversations"));
    },
  );

  it("is reported for each tenant, and for each key, with the limits", async () => {
    const tenant = newTenant();
    await ask(gateway, "POST", `/v1/admin/tenants/${tenant}`, { limits: { stored_bytes: LIMIT, stored_responses: 9 } });
    const keys = [await makeKey(gateway, tenant), await makeKey(gateway, tenant, { stored_conversations: 5 })] as const;
    for (const key of [keys[0], keys[0], keys[1]]) await (await converse(key, 10_000)).text();
    expect((await create(gateway, keys[1])).status).toBe(200);
    const counts = { num_responses: 1, num_conversations: 3 };
    const limits = { stored_bytes: LIMIT, stored_responses: 9 };
    const of = await eventually(async () =>
      (await storageOf(gateway, keys[0])).find(({ num_responses: turns }) => turns === 1),
    );
    expect(of).toMatchObject({ ...counts, project_id: null, api_key_id: null, limits });
    expect(await storageOf(gateway, tenant)).toEqual([of]);
    expect(await storageOf(gateway, tenant, "&group_by=project_id")).toEqual([{ ...of, project_id: tenant }]);
    const byKey = (await storageOf(gateway, tenant, "&group_by=api_key_id")).filter(
      ({ api_key_id: id }) => id !== null,
    );
    expect(byKey).toHaveLength(2);
    const sum = byKey.reduce((bytes, each) => bytes + each.usage_bytes, 0);
    expect(sum).toBe(of.usage_bytes);
    expect(byKey.find(({ api_key_id: id }) => id === keys[1].id)).toMatchObject({
      num_responses: 1,
      num_conversations: 1,
    });
    // A key cannot read another tenant's amounts.
    const stranger = await limited({ stored_bytes: LIMIT });
    expect(await storageOf(gateway, stranger, `&project_ids=${tenant}`)).toMatchObject([{ num_conversations: 0 }]);
  });

  it("is not exceeded by conversations that are created at once", async () => {
    const key = await limited({ stored_bytes: LIMIT });
    const made = await statuses(Array.from({ length: 40 }, () => converse(key)));
    expect(made[200]).toBeGreaterThanOrEqual(15);
    const { usage_bytes: bytes } = await eventually(async () =>
      (await storageOf(gateway, key)).find(({ num_conversations: count }) => count === made[200]),
    );
    expect(bytes).toBeLessThanOrEqual(LIMIT);
  });

  it("has reservations for running turns: others are refused until these have ended, with a time to retry", async () => {
    const key = await limited({ stored_bytes: 1_000_000 });
    const input = unique("Stored");
    // Each reserves 4 bytes a token, and a page. Nine fit at a time.
    const body = { model: STALLED, input, max_output_tokens: 25_000 };
    const refused: Response[] = [];
    const answers = Array.from({ length: 30 }, async () => {
      const answer = await create(gateway, key, body);
      if (answer.status === 429) refused.push(answer);
      return answer.status;
    });
    await eventually(() => refused.length + promptsFor(gateway, input).length === 30);
    expect(refused).toHaveLength(21);
    for (const { release } of promptsFor(gateway, input)) release();
    expect((await Promise.all(answers)).filter((status) => status === 200)).toHaveLength(9);
    for (const answer of refused) {
      expect(told(answer)).toMatchObject({ "retry-after": expect.stringMatching(/^\d+$/), "x-should-retry": "true" });
      await expectError(answer, exceeded("stored_bytes"));
    }
    await reported(key, { num_responses: 9 });
    expect(await statuses([create(gateway, key, { ...body, model: "simulator" })])).toEqual({ 200: 1 });
  });
});

describe("a key's policy", () => {
  it("restricts its models: others are a 403, the list has no others, and its first is the default", async () => {
    const key = await limited({ models: ["simulator?words=2", "simulator?chunk*"] });
    await expectError(await create(gateway, key), { status: 403, code: "model_not_found", param: "model" });
    expect((await create(gateway, key, { model: "simulator?chunk=3" })).status).toBe(200);
    const answer = await call(gateway, "POST", "/v1/responses", { input: "Hello!" }, key.value);
    expect(((await answer.json()) as { model: string }).model).toBe("simulator?words=2");
    const { data } = (await (await call(gateway, "GET", "/v1/models", undefined, key.value)).json()) as {
      data: unknown[];
    };
    expect(data).toEqual([]);
    const wild = await limited({ models: ["sim*"] });
    await expectError(await call(gateway, "POST", "/v1/responses", { input: "Hello!" }, wild.value), {
      status: 400,
      param: "model",
    });
  });

  it("caps max_output_tokens: none becomes the cap, more is a 400", async () => {
    const key = await limited({ max_output_tokens: 7 });
    await expectError(await create(gateway, key, { max_output_tokens: 8 }), {
      status: 400,
      param: "max_output_tokens",
      code: "above_max_value",
    });
    const { max_output_tokens: told } = (await (await create(gateway, key)).json()) as { max_output_tokens: number };
    expect(told).toBe(7);
    expect(lastPrompt(gateway).max_completion_tokens ?? lastPrompt(gateway).max_tokens).toBe(7);
  });

  it("may forbid storage: store is false, also in the background, and conversations are refused", async () => {
    const key = await limited({ force_store_false: true });
    // This bypasses the checks, because the echo differs from the request.
    const client = gateway.client({ apiKey: key.value, fetch });
    const response = await client.responses.create({ model: "simulator", input: "Hello!", store: true });
    expect((response as { store?: boolean }).store).toBe(false);
    expect(await rejection(client.responses.retrieve(response.id))).toBeInstanceOf(OpenAI.NotFoundError);
    const begun = await client.responses.create({ model: "simulator", input: "Hello!", background: true });
    expect((begun as { store?: boolean }).store).toBe(false);
    const ended = await eventually(async () => {
      const { status } = await client.responses.retrieve(begun.id);
      return status === "completed" && status;
    });
    expect(ended).toBe("completed");
    await expectError(await create(gateway, key, { conversation: `conv_${"a".repeat(32)}` }), {
      status: 400,
      param: "conversation",
    });
    expect(await rejection(client.conversations.create())).toMatchObject({ status: 403, code: "storage_not_allowed" });
  });

  it("opens vLLM's extra fields to it, and to no other", async () => {
    const key = await limited({ vllm_extras: ["chat_template_kwargs"] });
    const body = { chat_template_kwargs: { enable_thinking: false } };
    expect((await create(gateway, key, body)).status).toBe(200);
    expect(lastPrompt(gateway).chat_template_kwargs).toEqual({ enable_thinking: false });
    await expectError(await create(gateway, key, { priority: 1 }), { status: 400, param: "priority" });
    await expectError(await create(gateway, await limited({}), body), { status: 400, param: "chat_template_kwargs" });
  });

  it("restricts its hosted tools and MCP hosts, also in runs", async () => {
    const key = await limited({ hosted_tools: [] });
    const search = { tools: [{ type: "web_search" }], tool_choice: { type: "web_search" } };
    await expectError(await create(gateway, key, search), { status: 400, param: "tool_choice" });
    await expectError(await create(gateway, key, { ...search, background: true }), {
      status: 400,
      param: "tool_choice",
    });
    const hosts = await limited({ mcp_hosts: ["mcp.acme.dev", "*.docs.acme.dev"] });
    const mcp = (url: string, more: object = {}, body: object = {}) =>
      create(gateway, hosts, {
        tools: [{ type: "mcp", server_label: "x", server_url: url, ...more }],
        tool_choice: "none",
        ...body,
      });
    for (const url of [
      "https://mcp.evil.dev/mcp",
      "https://acme.dev/",
      "https://docs.acme.dev/mcp",
      "https://mcp.acme.dev:444/",
    ]) {
      await expectError(await mcp(url), { status: 400, code: "mcp_server_not_allowed", param: "tools[0].server_url" });
    }
    const inBackground = await mcp("https://mcp.evil.dev/mcp", { require_approval: "never" }, { background: true });
    await expectError(inBackground, { status: 400, code: "mcp_server_not_allowed" });
    for (const url of ["https://mcp.acme.dev/mcp", "https://a.docs.acme.dev/mcp"])
      expect((await mcp(url)).status).toBe(200);
  });

  it("cannot exceed its tenant's", async () => {
    const tenant = newTenant();
    await ask(gateway, "POST", `/v1/admin/tenants/${tenant}`, {
      limits: { models: ["simulator"], max_output_tokens: 5 },
    });
    const key = await makeKey(gateway, tenant, { models: ["simulator?words=2", "simulator"], max_output_tokens: 50 });
    await expectError(await create(gateway, key, { model: "simulator?words=2" }), { status: 403 });
    await expectError(await create(gateway, key, { max_output_tokens: 6 }), {
      status: 400,
      param: "max_output_tokens",
    });
    expect((await create(gateway, key, { max_output_tokens: 5 })).status).toBe(200);
  });
});

describe("a key without limits", () => {
  it("has no headers of limits; its usage is counted all the same", async () => {
    const key = await makeKey(gateway, newTenant(), { models: ["simulator"] });
    const answer = await create(gateway, key, { stream: true });
    expect(told(answer)).toEqual({});
    await readStream(answer);
    await eventually(async () => (await usageOf(key))[0]);
  });
});

describe("priority", () => {
  let tiered: Gateway;
  beforeAll(async () => {
    tiered = await startWithKeys({
      VLLM_PRIORITIES: JSON.stringify({ default: 5, background: 100, gold: -10 }),
      VLLM_EXTRAS: "priority",
    });
  });
  afterAll(() => tiered.close());

  it("is that of the key's tier, later for background runs, and a client cannot request a better one", async () => {
    const gold = await makeKey(tiered, newTenant(), { tier: "gold" });
    const plain = await makeKey(tiered, newTenant());
    const sent = async (key: MadeKey, body: object = {}) => {
      expect((await create(tiered, key, body)).status).toBe(200);
      return lastPrompt(tiered).priority;
    };
    expect(await sent(gold)).toBe(-10);
    expect(await sent(plain)).toBe(5);
    expect(await sent(plain, { priority: 7 })).toBe(7);
    for (const [key, priority] of [
      [gold, -11],
      [plain, 4],
      [plain, -10],
    ] as const) {
      await expectError(await create(tiered, key, { priority }), {
        status: 400,
        param: "priority",
        code: "below_min_value",
      });
    }
    const input = unique("Later");
    const { id } = await tiered
      .client({ apiKey: gold.value })
      .responses.create({ model: "simulator", input, background: true });
    await ended({ openai: tiered.client({ apiKey: gold.value }), vllm: tiered.vllm }, id);
    expect(lastPrompt(tiered).priority).toBe(90);
  });

  it("is not sent unless the operator enables it", async () => {
    const key = await limited({ tier: "gold" });
    expect((await create(gateway, key)).status).toBe(200);
    expect(lastPrompt(gateway)).not.toHaveProperty("priority");
  });
});
