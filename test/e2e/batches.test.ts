import { createHash } from "node:crypto";
import { parseResponseId } from "@responses-edge/responses-api/ids";
import type OpenAI from "openai";
import { toFile } from "openai";
import type { Batch, BatchCreateParams } from "openai/resources/batches";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { uniqueKeyOf } from "../../cli/serve/workerd.ts";
import { descriptionOf } from "../conformance/api-description.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { objectId } from "../workerd/storage.ts";
import { type MortalServer, startMortalServer } from "./mortal-server.ts";
import { eventually, type Gateway, gatewayAt } from "./support.ts";

/** Batches: a file of requests, each of which is answered once, in another file. */

const KEYS = { a: "key-of-tenant-a", b: "key-of-tenant-b" };
let server: MortalServer;
let worker: WorkerdProcess;
let gateway: Gateway;
let openai: OpenAI;
let other: OpenAI;
beforeAll(async () => {
  const API_KEYS = Object.entries(KEYS)
    .map(([tenant, key]) => `${tenant}:${createHash("sha256").update(key).digest("hex")}`)
    .join(",");
  server = await startMortalServer();
  worker = await startWorkerd(
    {
      VLLM_BASE_URL: server.url,
      API_KEYS,
      VLLM_FOREGROUND_RECOVERY_TIME_MS: "100",
      PASSTHROUGH_ENDPOINTS: "chat/completions,embeddings",
      WEBHOOK_URLS: server.url,
      BATCHES_PER_TENANT: "8",
      BATCH_CONCURRENCY: "4",
    },
    { readsFormats: false },
  );
  gateway = gatewayAt(worker, server.simulator, await descriptionOf(worker.url));
  openai = gateway.client({ apiKey: KEYS.a });
  other = gateway.client({ apiKey: KEYS.b });
});
afterAll(async () => {
  await gateway.close();
  await server.close();
});

const line = (id: string, body: object, url = "/v1/responses") => ({ custom_id: id, method: "POST", url, body });
/** A model whose server is always full. */
const FULL = "simulator?fault=http:503";
const say = (text: string) => ({ model: "simulator", input: text });

async function upload(lines: readonly (object | string)[]): Promise<string> {
  const text = lines.map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join("\n");
  const file = await openai.files.create({ file: await toFile(Buffer.from(text), "batch.jsonl"), purpose: "batch" });
  return file.id;
}

async function begin(lines: readonly (object | string)[], fields: Partial<BatchCreateParams> = {}): Promise<Batch> {
  const input_file_id = await upload(lines);
  return openai.batches.create({ input_file_id, endpoint: "/v1/responses", completion_window: "24h", ...fields });
}

const OVER = ["completed", "failed", "cancelled", "expired"];
const over = ({ id }: Batch) =>
  eventually(async () => {
    const batch = await openai.batches.retrieve(id);
    return OVER.includes(batch.status) ? batch : undefined;
  });

/** The messages of a chat completion. */
interface Asked {
  model?: string;
  messages?: { content: string }[];
}

interface Line {
  custom_id: string;
  response: { status_code: number; body: { id?: string; output?: object[]; error?: { param: string } } } | null;
  error: object | null;
}

async function linesOf(id: string | undefined): Promise<Line[]> {
  const text = await (await openai.files.content(id ?? "")).text();
  return text
    .trimEnd()
    .split("\n")
    .map((each) => JSON.parse(each) as Line);
}

describe("a batch", () => {
  it("answers each of its requests once, in a file", async () => {
    const ids = Array.from({ length: 12 }, (_, index) => `request-${index}`);
    const batch = await over(
      await begin(
        ids.map((id) => line(id, say(id))),
        { metadata: { job: "night" } },
      ),
    );
    expect(batch).toMatchObject({
      status: "completed",
      model: "simulator",
      metadata: { job: "night" },
      request_counts: { total: 12, completed: 12, failed: 0 },
    });
    expect(batch.error_file_id).toBeUndefined();
    const lines = await linesOf(batch.output_file_id);
    expect(lines.map(({ custom_id }) => custom_id)).toEqual(ids);
    const include = ["timing"] as unknown as ["reasoning.encrypted_content"];
    const responses = await Promise.all(
      lines.map(({ response }) => openai.responses.retrieve(response?.body.id ?? "", { include })),
    );
    for (const response of responses) expect(response).toMatchObject({ timing: { rounds: [{ attempts: 1 }] } });
    expect(responses.map(({ output_text }) => output_text)).toEqual(ids.map((id) => `You said: ${id}`));
    const input = responses.reduce((sum, { usage }) => sum + (usage?.input_tokens ?? 0), 0);
    expect(batch.usage).toMatchObject({ input_tokens: input });
    expect((await openai.files.retrieve(batch.output_file_id ?? "")).purpose).toBe("batch_output");
  });

  it("lists refusals in another file, and continues", async () => {
    const bad = { ...say("no"), temperature: 9 };
    const batch = await over(
      await begin([line("good", say("yes")), line("bad", bad), line("streamed", { ...say("no"), stream: true })]),
    );
    expect(batch).toMatchObject({ status: "completed", request_counts: { total: 3, completed: 1, failed: 2 } });
    const errors = await linesOf(batch.error_file_id);
    expect(
      errors.map(({ custom_id, response }) => [custom_id, response?.status_code, response?.body.error?.param]),
    ).toEqual([
      ["bad", 400, "temperature"],
      ["streamed", 400, "stream"],
    ]);
  });

  it("may use the model server's own endpoints that the operator has opened", async () => {
    const chat = { model: "simulator", messages: [{ role: "user", content: "Hello!" }] };
    const url = "/v1/chat/completions";
    const batch = await over(await begin([line("chat", chat, url)], { endpoint: url }));
    const [answer] = await linesOf(batch.output_file_id);
    expect(answer).toMatchObject({ custom_id: "chat", error: null, response: { body: { object: "chat.completion" } } });
    expect(batch.usage?.output_tokens).toBeGreaterThan(0);
    const input_file_id = await upload([line("x", {}, "/v1/completions")]);
    const closed = openai.batches.create({ input_file_id, endpoint: "/v1/completions", completion_window: "24h" });
    await expect(closed).rejects.toMatchObject({ status: 400, param: "endpoint" });
  });

  it.each([
    ["no JSON", ["{"], "invalid_json_line", 1],
    ["the id of an earlier line", [line("a", say("1")), line("a", say("2"))], "duplicate_custom_id", 2],
    ["another endpoint", [line("a", {}, "/v1/embeddings")], "mismatched_url", 1],
    ["no id", [{ method: "POST", url: "/v1/responses", body: {} }], "missing_required_parameter", 1],
    ["no lines", [""], "empty_file", null],
    ["a line of a million [", ["[".repeat(1_000_000)], "invalid_json_line", 1],
    ["a line of a million {}", [`{"a":[${"{},".repeat(1_000_000)}{}]}`], "invalid_json_line", 1],
  ])("with %s fails before any request", async (_, lines, code, at) => {
    const batch = await over(await begin(lines));
    expect(batch).toMatchObject({ status: "failed", errors: { data: [{ code, line: at }] } });
    expect(batch.output_file_id).toBeUndefined();
  });

  it("waits for a server that dies in the middle of a line and returns, and for a busy one", async () => {
    const mortal = { model: "simulator?max_model_len=77777", input: "Come back." };
    const full = { model: FULL, input: "Full." };
    server.dieAfter(mortal.model, 3, "kill");
    const made = await begin([line("mortal", mortal), line("full", full)]);
    await eventually(() => server.dead);
    await server.restart();
    await eventually(async () => (await openai.batches.retrieve(made.id)).request_counts?.completed === 1);
    const { requests } = server.simulator.simulator;
    const asked = () => requests.filter(({ body }) => (body as Asked | undefined)?.model === full.model).length;
    await eventually(() => asked() >= 3);
    const tries = "SELECT tries FROM attempt WHERE batch = ?";
    expect(worker.batches.exec(objectId("a", uniqueKeyOf("Batches")), tries, made.id)).toEqual([]);
    await openai.batches.cancel(made.id);
    const [answer] = await linesOf((await over(made)).output_file_id);
    expect(answer).toMatchObject({ custom_id: "mortal", response: { body: { status: "completed" } } });
  });

  it("answers a line with its stored response if the process died between storing the two", async () => {
    const made = await begin([line("once", say("Once.")), line("full", { ...say("x"), model: FULL })]);
    await eventually(async () => (await openai.batches.retrieve(made.id)).request_counts?.completed === 1);
    await worker.kill();
    const batches = objectId("a", uniqueKeyOf("Batches"));
    const [row] = worker.batches.exec(batches, "DELETE FROM answer WHERE batch = ? RETURNING body", made.id);
    const { response } = JSON.parse(String(row?.body)) as Line;
    const { home } = parseResponseId(response?.body.id ?? "") ?? {};
    const other = "UPDATE turns SET output = replace(output, 'You said: Once.', 'Stored before.') RETURNING turn";
    expect(worker.storage.exec(objectId(`a:${home}`, uniqueKeyOf("Home")), other)).not.toEqual([]);
    await worker.restart();
    await eventually(async () => (await openai.batches.retrieve(made.id)).request_counts?.completed === 1);
    await openai.batches.cancel(made.id);
    const [answer] = await linesOf((await over(made)).output_file_id);
    expect(answer?.response?.body).toMatchObject({ id: response?.body.id });
    expect(JSON.stringify(answer)).toContain("Stored before.");
  });

  it("answers a line once after the model server's 429 and 504, which count as no failure", async () => {
    const asked = ["http:429", "http:504"].map((fault) => ({
      ...say(fault),
      model: `simulator?fault=${fault}&fault_times=2`,
    }));
    const batch = await over(await begin(asked.map((body, index) => line(`line-${index}`, body))));
    expect(batch).toMatchObject({ status: "completed", request_counts: { total: 2, completed: 2, failed: 0 } });
    const lines = await linesOf(batch.output_file_id);
    expect(lines.map(({ custom_id }) => custom_id)).toEqual(["line-0", "line-1"]);
    for (const { response } of lines) {
      expect((await openai.responses.retrieve(response?.body.id ?? "")).status).toBe("completed");
    }
    // Each has been refused twice, and was then answered.
    const { requests } = server.simulator.simulator;
    const of = (model: string) =>
      requests.filter(({ body }) => (body as { model?: string } | undefined)?.model === model);
    for (const { model } of asked) expect(of(model)).toHaveLength(3);
  });

  it("waits for the time that the model server names in a 429", async () => {
    const { simulator } = server.simulator;
    const answer = simulator.fetch;
    const asked: string[] = [];
    simulator.fetch = async (request) => {
      const { messages: [message] = [] } = (await request
        .clone()
        .json()
        .catch(() => ({}))) as Asked;
      if (message) asked.push(message.content);
      const response = await answer.call(simulator, request);
      if (message?.content === "told") response.headers.set("retry-after", "60");
      return response;
    };
    try {
      const url = "/v1/chat/completions";
      const refused = (content: string) =>
        line(content, { model: "simulator?fault=http:429", messages: [{ role: "user", content }] }, url);
      const made = await begin([refused("told"), refused("untold")], { endpoint: url });
      await eventually(() => asked.filter((content) => content === "untold").length >= 3);
      expect(asked.filter((content) => content === "told")).toHaveLength(1);
      await openai.batches.cancel(made.id);
      expect(await over(made)).toMatchObject({ status: "cancelled", request_counts: { completed: 0, failed: 0 } });
    } finally {
      simulator.fetch = answer;
    }
  });

  it("ends when it is cancelled, with the answers so far", async () => {
    const slow = (id: string) => line(id, { model: "simulator?tps=5&words=1000", input: "Slow.", store: false });
    const made = await begin([
      line("quick", say("quick")),
      ...Array.from({ length: 20 }, (_, index) => slow(`s${index}`)),
    ]);
    await eventually(async () => (await openai.batches.retrieve(made.id)).request_counts?.completed === 1);
    expect((await openai.batches.cancel(made.id)).status).toBe("cancelling");
    const batch = await over(made);
    expect(batch).toMatchObject({ status: "cancelled", request_counts: { total: 21, completed: 1 } });
    expect((await linesOf(batch.output_file_id)).map(({ custom_id }) => custom_id)).toEqual(["quick"]);
  });

  /** The deliveries of a webhook endpoint, when there are this many and each was tried. */
  function delivered(hook: string, count: number) {
    return eventually(async () => {
      const headers = { authorization: `Bearer ${KEYS.a}` };
      const answer = await gateway.fetch(`${gateway.url}/v1/webhook_endpoints/${hook}/deliveries`, { headers });
      const { data } = (await answer.json()) as { data: { attempts: number; event: { type: string; data: object } }[] };
      return data.length === count && data.every(({ attempts }) => attempts > 0) ? data : undefined;
    });
  }

  it("expires with the answers so far, names the requests that were not sent, and reports it to webhooks", async () => {
    // The model server has no such path: the delivery is repeated.
    const event_types = ["batch.completed", "batch.expired"] as const;
    const hook = await openai.webhooks.create({
      name: "expiry",
      url: `${server.url}/expiry`,
      event_types: [...event_types],
    });
    const full = { ...say("x"), model: FULL };
    const made = await begin([line("quick", say("quick")), line("full", full)]);
    await eventually(async () => (await openai.batches.retrieve(made.id)).request_counts?.completed === 1);
    await worker.kill();
    const past = "UPDATE batch SET body = json_set(body, '$.expiresAt', 1) WHERE id = ? RETURNING id";
    expect(worker.batches.exec(objectId("a", uniqueKeyOf("Batches")), past, made.id)).toHaveLength(1);
    await worker.restart();
    const batch = await over(made);
    expect(batch).toMatchObject({ status: "expired", request_counts: { total: 2, completed: 1, failed: 1 } });
    expect(batch.expired_at).toEqual(expect.any(Number));
    expect((await linesOf(batch.output_file_id)).map(({ custom_id }) => custom_id)).toEqual(["quick"]);
    expect(await linesOf(batch.error_file_id)).toMatchObject([
      { custom_id: "full", response: null, error: { code: "batch_expired" } },
    ]);
    const [told] = await delivered(hook.id, 1);
    expect(told?.event).toMatchObject({ type: "batch.expired", data: { id: made.id } });
    await openai.webhooks.delete(hook.id);
  });

  it("reports each end to the tenant's webhook endpoints, whose list of deliveries has the attempts", async () => {
    const types = ["batch.completed", "batch.failed", "batch.cancelled", "batch.expired"] as const;
    // The model server has no such path: each delivery is repeated.
    const hook = await openai.webhooks.create({ name: "ends", url: `${server.url}/ends`, event_types: [...types] });
    const completed = await over(await begin([line("a", say("a"))]));
    const failed = await over(await begin(["{"]));
    const cancelled = await begin([line("s", { model: "simulator?tps=5&words=1000", input: "Slow.", store: false })]);
    await openai.batches.cancel(cancelled.id);
    await over(cancelled);
    const deliveries = await delivered(hook.id, 3);
    expect(deliveries.map(({ event }) => [event.type, event.data]).toSorted()).toEqual([
      ["batch.cancelled", { id: cancelled.id }],
      ["batch.completed", { id: completed.id }],
      ["batch.failed", { id: failed.id }],
    ]);
    for (const delivery of deliveries) {
      expect(delivery).toMatchObject({ status: "pending", status_code: 404, next_attempt_at: expect.any(Number) });
    }
    await openai.webhooks.delete(hook.id);
  });

  it("has files that expire when the request says so, and one completion window", async () => {
    const output_expires_after = { anchor: "created_at" as const, seconds: 3_600 };
    const batch = await over(await begin([line("a", say("a"))], { output_expires_after }));
    const { created_at, expires_at } = await openai.files.retrieve(batch.output_file_id ?? "");
    expect(expires_at).toBe(created_at + 3_600);
    const other = begin([line("a", say("a"))], { completion_window: "48h" as "24h" });
    await expect(other).rejects.toMatchObject({ status: 400, param: "completion_window" });
  });

  it("is only on its tenant's list", async () => {
    const made = await begin([line("a", say("a"))]);
    await over(made);
    expect((await openai.batches.list({ limit: 1 })).data.map(({ id }) => id)).toEqual([made.id]);
    expect((await other.batches.list()).data).toEqual([]);
    for (const ask of [() => other.batches.retrieve(made.id), () => other.batches.cancel(made.id)]) {
      await expect(ask()).rejects.toMatchObject({ status: 404, code: "batch_not_found" });
    }
    const input_file_id = await upload([line("a", say("a"))]);
    const theirs = other.batches.create({ input_file_id, endpoint: "/v1/responses", completion_window: "24h" });
    await expect(theirs).rejects.toMatchObject({ status: 404, param: "input_file_id" });
  });

  it("needs a file with the purpose of batches", async () => {
    const file = await openai.files.create({ file: await toFile(Buffer.from("{}"), "a.jsonl"), purpose: "assistants" });
    const made = openai.batches.create({ input_file_id: file.id, endpoint: "/v1/responses", completion_window: "24h" });
    await expect(made).rejects.toMatchObject({ status: 400, param: "input_file_id" });
  });
});
