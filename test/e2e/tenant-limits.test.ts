import { createHash } from "node:crypto";
import OpenAI from "openai";
import type { Response } from "openai/resources/responses/responses";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { incompressible } from "./key-support.ts";
import { refusedUpgrade, SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";
import { ended, promptsFor, reached, unique } from "./turns.ts";

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

let gateway: Gateway;
let ann: OpenAI;
let bob: OpenAI;
beforeAll(async () => {
  gateway = await startGateway({
    API_KEYS: ["ann-key", "bob-key", "eve-key", "ida-key", "ida-second-key"]
      .map((key) => `${key.split("-")[0]}:${sha256(key)}`)
      .join(","),
    DISK_SHARE: "2000000",
    MAX_BACKGROUND_RUNS_PER_TENANT: "2",
    MAX_OPEN_CONVERSATIONS_PER_TENANT: "2",
    MAX_WEBSOCKETS_PER_TENANT: "2",
    MAX_OPEN_TURNS: "4000",
  });
  ann = gateway.client({ apiKey: "ann-key" });
  bob = gateway.client({ apiKey: "bob-key" });
  // The gateway that the helpers use.
  gateway.openai = ann;
});
afterAll(() => gateway.close());

const ENDLESS = "simulator?tps=20&words=100000";

const TOO_MANY = { status: 429, code: "rate_limit_exceeded", type: "rate_limit_error" };

async function expectTooMany(request: PromiseLike<unknown>): Promise<void> {
  const error = await Promise.resolve(request).catch((error: unknown) => error);
  expect(error).toBeInstanceOf(OpenAI.RateLimitError);
  expect(error).toMatchObject(TOO_MANY);
  expect((error as InstanceType<typeof OpenAI.RateLimitError>).headers?.get("retry-after")).toMatch(/^\d+$/);
}

const running: Response[] = [];
afterEach(async () => {
  for (const { id } of running.splice(0)) await ann.responses.cancel(id).catch(() => {});
});

async function run(client: OpenAI, more: object = {}): Promise<Response> {
  const response = await client.responses.create({ model: ENDLESS, input: unique("Run"), background: true, ...more });
  if (client === ann) running.push(response);
  return response;
}

describe("the usage of a tenant whose keys are all in API_KEYS", () => {
  interface Used {
    api_key_id: string | null;
    model: string | null;
    num_model_requests: number;
    num_errors: number;
    input_tokens: number;
    output_tokens: number;
    duration_ms_sum: number;
    p50_ms: number | null;
    p95_ms: number | null;
    p50_first_token_ms: number | null;
  }

  async function usageOf(key: string, query: string): Promise<Used[]> {
    const from = Math.floor(Date.now() / 1000) - 3_600;
    const path = `/v1/organization/usage/completions?start_time=${from}&bucket_width=1h&${query}`;
    const answer = await gateway.fetch(gateway.url + path, { headers: { authorization: `Bearer ${key}` } });
    expect(answer.status).toBe(200);
    const { data } = (await answer.json()) as { data: { results: Used[] }[] };
    return data.flatMap(({ results }) => results);
  }

  it("is counted without any setting, by key and model, with errors and times, and read by the tenant alone", async () => {
    const [first, second] = ["ida-key", "ida-second-key"].map((apiKey) => gateway.client({ apiKey, maxRetries: 0 }));
    if (!first || !second) throw new TypeError("There are two keys.");
    const whole = await first.responses.create({ model: "simulator", input: "Hello!", store: false });
    const background = await first.responses.create({ model: "simulator", input: "Hello!", background: true });
    await ended({ openai: first, vllm: gateway.vllm }, background.id);
    const streamed = await second.responses.create({ model: "simulator", input: "Hello!", stream: true });
    for await (const _ of streamed);
    await expect(second.responses.create({ model: "simulator?fault=http:400", input: "Hello!" })).rejects.toThrow();
    await expect(second.responses.create({ input: "Hello!", temperature: 9 })).rejects.toThrow();
    const rows = await eventually(async () => {
      const told = await usageOf("ida-key", "group_by=api_key_id,model");
      const sum = (of: (row: Used) => number) => told.reduce((total, row) => total + of(row), 0);
      return sum((row) => row.num_model_requests) === 3 && sum((row) => row.num_errors) === 2 ? told : undefined;
    });
    const ids = [...new Set(rows.map((row) => row.api_key_id))];
    expect(ids).toEqual([expect.stringMatching(/^configured_[0-9a-f]{16}$/), expect.stringMatching(/^configured_/)]);
    const ofFirst = rows.find((row) => row.num_model_requests === 2);
    expect(ofFirst).toMatchObject({
      ...{ model: "simulator", num_errors: 0, p50_ms: expect.any(Number), p95_ms: expect.any(Number) },
      ...{ input_tokens: 2 * (whole.usage?.input_tokens ?? 0), output_tokens: 2 * (whole.usage?.output_tokens ?? 0) },
      p50_first_token_ms: expect.any(Number),
    });
    const others = rows.filter((row) => row.api_key_id !== ofFirst?.api_key_id);
    const errors = Object.fromEntries(others.map((row) => [row.model, row.num_errors]));
    expect(errors).toEqual({ simulator: 0, "simulator?fault=http:400": 1, unknown: 1 });
    expect(await usageOf("bob-key", "project_ids=ida&group_by=api_key_id&models=unknown")).toEqual([]);
  });
});

describe("a tenant with all the background responses that it may have", () => {
  it("gets a refusal for another one, which leaves nothing; another tenant does not", async () => {
    await run(ann);
    await run(ann);
    await expectTooMany(run(ann));
    await expectTooMany(ann.responses.create({ model: ENDLESS, input: "Streamed", background: true, stream: true }));
    await expectTooMany(ann.responses.create({ input: "Keyed" }, { headers: { "idempotency-key": unique("key") } }));
    const theirs = await run(bob);
    expect((await bob.responses.cancel(theirs.id)).status).toBe("cancelled");
    // Foreground turns do not count.
    expect((await ann.responses.create({ input: "Hello!" })).status).toBe("completed");
  });

  it.each<[string, (response: Response) => Promise<unknown>]>([
    ["cancelled", ({ id }) => ann.responses.cancel(id)],
    ["deleted", ({ id }) => ann.responses.delete(id)],
  ])("may begin another when one was %s", async (_, end) => {
    const first = await run(ann);
    await run(ann);
    await expectTooMany(run(ann));
    await end(first);
    expect((await run(ann)).status).toBe("queued");
    await expectTooMany(run(ann));
  });

  it.each(["simulator?words=3", "simulator?fault=http:400"])(
    "may begin another when one has ended (%s)",
    async (model) => {
      await run(ann);
      for (let turn = 0; turn < 4; turn += 1) await ended(gateway, (await run(ann, { model })).id);
      expect((await run(ann)).status).toBe("queued");
    },
  );

  it("may use the idempotency key of a refused request again", async () => {
    const [first] = [await run(ann), await run(ann)];
    const headers = { "idempotency-key": unique("key") };
    await expectTooMany(ann.responses.create({ input: "Keyed" }, { headers }));
    await ann.responses.cancel(first.id);
    expect((await ann.responses.create({ input: "Keyed" }, { headers })).status).toBe("completed");
  });
});

describe("a tenant with all the conversations open that it may have", () => {
  it("gets a refusal for another turn until a client has disconnected or a turn has ended; another tenant does not", async () => {
    const conversations = await Promise.all([1, 2, 3].map(() => ann.conversations.create()));
    const [one, two, three] = conversations.map(({ id }) => id);
    const input = unique("Leaves");
    const leaving = await ann.responses.create({ model: ENDLESS, input, conversation: one, stream: true });
    const background = await run(ann, { conversation: two });
    await reached(gateway, input);
    await expectTooMany(ann.responses.create({ input: "Hello!", conversation: three }));
    await expectTooMany(ann.responses.create({ input: "Waits", conversation: one }));
    await expectTooMany(
      ann.conversations.items.create(three ?? "", { items: [{ type: "message", role: "user", content: "Hello!" }] }),
    );
    const { id: theirs } = await bob.conversations.create();
    expect((await bob.responses.create({ input: "Hello!", conversation: theirs })).status).toBe("completed");
    leaving.controller.abort();
    const answer = () => ann.responses.create({ input: "Hello!", conversation: three }).catch(() => undefined);
    expect((await eventually(answer, 10_000)).status).toBe("completed");
    await ann.responses.cancel(background.id);
    expect((await ann.responses.create({ input: "Hello!", conversation: two })).status).toBe("completed");
  });
});

describe("a tenant with all the WebSockets open that it may have", () => {
  const keyOf = (name: string) => ({ headers: { authorization: `Bearer ${name}-key` } });
  const connect = (name: string) => SocketClient.open(gateway, keyOf(name));

  async function expectNoMore(): Promise<void> {
    const { status, headers, body } = await refusedUpgrade(gateway, keyOf("ann"));
    expect({ status, body }).toEqual({
      status: 429,
      body: {
        error: {
          message: "You already have 2 WebSocket connections. Close one, or send requests over HTTP.",
          type: "rate_limit_error",
          param: null,
          code: "rate_limit_exceeded",
        },
      },
    });
    expect(headers["retry-after"]).toMatch(/^\d+$/);
  }

  it.each(["close", "terminate"] as const)(
    "gets a refusal before the upgrade until one has ended by %s; another tenant does not",
    async (leave) => {
      const [first, second] = [await connect("ann"), await connect("ann")];
      await expectNoMore();
      const theirs = await connect("bob");
      // The open ones go on, and HTTP works.
      expect((await first.turn({ input: "Hello!" })).text).toBe("You said: Hello!");
      expect((await ann.responses.create({ input: "Hello!" })).status).toBe("completed");
      first[leave]();
      const third = await eventually(() => connect("ann").catch(() => undefined));
      await expectNoMore();
      await Promise.all([second, third, theirs].map((socket) => socket.close()));
    },
  );

  it("gets a refusal while a client has not closed a connection that the server has closed", async () => {
    const [first, second] = [await connect("ann"), await connect("ann")];
    const input = unique("Floods");
    first.create({ model: ENDLESS, input });
    await reached(gateway, input);
    first.socket.pause();
    for (let frame = 0; frame < 2_000; frame += 1) first.send({ type: "response.processed" });
    await eventually(() => promptsFor(gateway, input)[0]?.state === "aborted");
    await expectNoMore();
    first.terminate();
    await (await eventually(() => connect("ann").catch(() => undefined))).close();
    await second.close();
  });
});

describe("a tenant that has filled its share of the disk", () => {
  const eve = () => gateway.client({ apiKey: "eve-key" });
  const converse = () =>
    eve().conversations.create({ items: [{ type: "message", role: "user", content: incompressible(100_000) }] });

  it("gets a refusal for what it would store, until something was deleted; other tenants do not", async () => {
    const kept: string[] = [];
    const stored = async () => void kept.push((await converse()).id);
    const refusal = await eventually(() => stored().catch((error: unknown) => error), 30_000);
    expect(kept.length).toBeGreaterThanOrEqual(18);
    expect(refusal).toBeInstanceOf(OpenAI.RateLimitError);
    expect(refusal).toMatchObject({
      status: 429,
      code: "storage_quota_exceeded",
      message: expect.stringContaining("organization eve may store 2000000 bytes ('stored_bytes')"),
    });
    const [first = ""] = kept;
    for (const way of [{}, { background: true }, { conversation: first, store: false }])
      await expect(eve().responses.create({ input: "Hello!", ...way })).rejects.toMatchObject({ status: 429 });
    expect((await eve().responses.create({ input: "Hello!", store: false })).status).toBe("completed");
    expect((await bob.responses.create({ input: "Hello!" })).status).toBe("completed");
    await eventually(() => gateway.logs().includes('"limit_nearly_used"'));
    expect(gateway.logs().match(/"tenant":"eve","limit":"stored_bytes"/g)).toHaveLength(1);
    for (const id of kept) await eve().conversations.delete(id);
    await eventually(() =>
      eve()
        .responses.create({ input: "Hello!" })
        .catch(() => undefined),
    );
  });
});

describe("a tenant's long requests", () => {
  /**
   * None of them reaches the model: they exceed its window, or have approvals without requests. Each takes a good part
   * of a second.
   */
  const LONG: [what: string, fields: object][] = [
    ["special tokens as text for gpt-oss", { model: "simulator-gpt-oss", input: `<|end|>${"a".repeat(2_000_000)}` }],
    [
      "20,000 approvals",
      {
        input: Array.from({ length: 20_000 }, (_, at) => ({
          type: "mcp_approval_response",
          id: `mcpr_${`${at}`.padStart(48, "0")}`,
          approval_request_id: `mcpr_${`${at}`.padStart(48, "0")}`,
          approve: true,
        })),
      },
    ],
  ];

  it.each(LONG)("of %s end after the turns of another tenant, also after an equally long one", async (_, fields) => {
    const body = JSON.stringify(fields);
    const order: string[] = [];
    const send = async (name: string, signal?: AbortSignal) => {
      const headers = { authorization: `Bearer ${name}-key`, "content-type": "application/json" };
      const init = { method: "POST", headers, body, ...(signal && { signal }) };
      const { status } = await fetch(`${gateway.url}/v1/responses`, init);
      order.push(`${name}'s long one: ${status}`);
    };
    const leaving = new AbortController();
    const long = Array.from({ length: 12 }, () => send("ann", leaving.signal));
    for (let turn = 0; turn < 3; turn += 1) {
      const { status } = await bob.responses.create({ input: "Hello!" });
      order.push(`bob's: ${status}`);
    }
    await send("bob");
    expect(order).toEqual([...Array(3).fill("bob's: completed"), "bob's long one: 400"]);
    leaving.abort();
    await Promise.allSettled(long);
  });
});
