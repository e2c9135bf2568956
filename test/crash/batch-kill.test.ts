import OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { eventually } from "../e2e/support.ts";
import { newSeed, randomFrom } from "../random.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { fetchAnew } from "../workerd/tools.ts";

/** A batch survives dying processes: no line is lost, and none is answered twice. */

/** `KILLS=50 LINES=10000 npx vitest run test/crash/batch-kill.test.ts` shows more of them. */
const KILLS = Number(process.env.KILLS ?? 3);
const LINES = Number(process.env.LINES ?? 90);

/** Many lines take longer than the default of this project's tests. Milliseconds. */
const TIMEOUT_MS = Math.max(240_000, LINES * 300);

let simulator: SimulatorServer;
let worker: WorkerdProcess;
let openai: OpenAI;
beforeAll(async () => {
  simulator = await serveSimulator();
  const variables = { VLLM_BASE_URL: `${simulator.url}/v1`, ALLOW_ANONYMOUS: "true" };
  worker = await startWorkerd(variables, { through: "serve" });
  openai = new OpenAI({ baseURL: `${worker.url}/v1`, apiKey: "none", fetch: fetchAnew, maxRetries: 0 });
});
afterAll(async () => {
  await worker.close();
  await simulator.close();
});

/** The stored responses of all homes. */
function storedResponses(): number {
  const { storage } = worker;
  const hasTurns = (id: string) => storage.exec(id, "SELECT 1 FROM sqlite_schema WHERE name = 'turns'").length > 0;
  const homes = storage.ids().filter(hasTurns);
  return homes.reduce((sum, id) => sum + Number(storage.exec(id, "SELECT COUNT(*) AS rows FROM turns")[0]?.rows), 0);
}

it(`kill -9 in the middle of a batch, ${KILLS} times, leaves each line answered once`, {
  timeout: TIMEOUT_MS,
}, async () => {
  const random = randomFrom(newSeed("batch-kill"));
  const ids = Array.from({ length: LINES }, (_, index) => `line-${index}`);
  const lines = ids.map((id) => ({
    custom_id: id,
    method: "POST",
    url: "/v1/responses",
    body: { model: "simulator?tps=200", input: `Say ${id}, please, and say it slowly.` },
  }));
  const file = new File([lines.map((line) => JSON.stringify(line)).join("\n")], "batch.jsonl");
  const { id: input } = await openai.files.create({ file, purpose: "batch" });
  const { id } = await openai.batches.create({
    input_file_id: input,
    endpoint: "/v1/responses",
    completion_window: "24h",
  });
  const answered = async () => {
    const { request_counts: counts, status } = await openai.batches.retrieve(id);
    return { status, count: counts?.completed ?? 0 };
  };
  for (let kill = 0; kill < KILLS; kill += 1) {
    const least = ((kill + random() * 0.8) * LINES) / (KILLS + 1);
    await eventually(async () => (await answered()).count >= least);
    await worker.restart();
  }
  await eventually(async () => (await answered()).status === "completed");
  const batch = await openai.batches.retrieve(id);
  expect(batch.request_counts).toEqual({ total: LINES, completed: LINES, failed: 0 });
  const text = await (await openai.files.content(batch.output_file_id ?? "")).text();
  const answers = text.trimEnd().split("\n");
  const read = answers.map((each) => JSON.parse(each) as { custom_id: string; response: { body: { id: string } } });
  expect(read.map(({ custom_id }) => custom_id)).toEqual(ids);
  expect(new Set(read.map(({ response }) => response.body.id)).size).toBe(LINES);
  expect(storedResponses()).toBe(LINES);
  // The answers are only in the file.
  const { batches } = worker;
  expect(batches.ids().flatMap((each) => batches.exec(each, "SELECT COUNT(*) AS rows FROM answer"))).toEqual([
    { rows: 0 },
  ]);
});

it("a request that ends its process whenever it is asked fails in the end, and no other does", async () => {
  const words = ["one", "poison", "three", "four"];
  const lines = words.map((word) => ({
    custom_id: word,
    method: "POST",
    url: "/v1/responses",
    body: { model: "simulator?tps=20&words=20", input: `Say ${word}.` },
  }));
  const file = new File([lines.map((line) => JSON.stringify(line)).join("\n")], "batch.jsonl");
  const { id: input } = await openai.files.create({ file, purpose: "batch" });
  const fields = { input_file_id: input, endpoint: "/v1/responses", completion_window: "24h" } as const;
  const { id } = await openai.batches.create(fields);
  const isPoison = (request: unknown) => JSON.stringify(request).includes("poison");
  let seen = simulator.simulator.requests.filter(isPoison).length;
  let deaths = 0;
  const batch = await eventually(async () => {
    const asked = simulator.simulator.requests.filter(isPoison).length;
    if (asked > seen) {
      seen = asked;
      deaths += 1;
      await worker.restart();
    }
    const now = await openai.batches.retrieve(id);
    return now.status === "completed" ? now : undefined;
  });
  expect(batch.request_counts).toEqual({ total: 4, completed: 3, failed: 1 });
  const text = await (await openai.files.content(batch.error_file_id ?? "")).text();
  expect(JSON.parse(text)).toMatchObject({
    custom_id: "poison",
    response: {
      status_code: 500,
      body: {
        error: {
          code: "server_restarted",
          message: "The request was given up: the server's process died 6 times while it worked on it.",
        },
      },
    },
  });
  expect(deaths).toBe(6);
});
