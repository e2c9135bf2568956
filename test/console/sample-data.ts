import { addDuration } from "@responses-edge/usage-limits";
import { uniqueKeyOf } from "../../cli/serve/workerd.ts";
import { ask, create, makeKey, usageOf } from "../e2e/key-support.ts";
import { eventually } from "../e2e/support.ts";
import { objectId } from "../workerd/storage.ts";
import type { Hooks } from "./hooks.ts";
import { type ConsoleRig, KEY } from "./support.ts";

/** The content of the console's pictures: a conversation with branches, and a deployment in use. */

const HOUR_MS = 3_600_000;

/** Creates a conversation. Returns the ids of the last turns of two of its branches. */
export async function sampleTree({ gateway }: ConsoleRig): Promise<{ one: string; other: string }> {
  const { responses } = gateway.client({ apiKey: KEY });
  const say = async (input: string, previous?: string, model = "simulator") =>
    (await responses.create({ model, input, ...(previous && { previous_response_id: previous }) })).id;
  const root = await say("Suggest a name for a small sailing boat.");
  const short = await say("Something of one syllable, please.", root);
  const windy = await say("Something that has to do with the wind.", root);
  const french = await say("And what would that be in French?", windy, "simulator-reasoning");
  const other = await say("How is it pronounced?", french);
  const one = await say("Why that one?", short);
  await say("Is there a well-known boat of that name?", short);
  await say("And in Portuguese?", windy);
  return { one, other };
}

const DOCUMENTS: [name: string, text: string, attributes: Record<string, string | number>][] = [
  [
    "stall.md",
    "# Stall\n\nThe wing stalls when the angle of attack grows too large. Lift is lost, and drag grows.",
    { chapter: 4 },
  ],
  ["propellers.txt", "A propeller is a wing that turns. Its tips are the fastest part of it.", { chapter: 7 }],
  ["rudders.txt", "The rudder moves the nose to the side, and not the wings.", { chapter: 5 }],
  ["photograph.png", "\u0089PNG\r\n\u001a\n\0\0\0", {}],
];

/** Creates a vector store. Returns its id. */
export async function sampleStore({ gateway }: ConsoleRig): Promise<string> {
  const { files, vectorStores } = gateway.client({ apiKey: KEY });
  const { id } = await vectorStores.create({
    name: "Handbook of flight",
    expires_after: { anchor: "last_active_at", days: 30 },
  });
  for (const [name, text, attributes] of DOCUMENTS) {
    const file = await files.create({ file: new File([text], name), purpose: "assistants" });
    await vectorStores.files.createAndPoll(id, { file_id: file.id, attributes }, { pollIntervalMs: 50 });
  }
  return id;
}

const line = (id: string, model: string) =>
  JSON.stringify({
    custom_id: id,
    method: "POST",
    url: "/v1/responses",
    body: { model, input: `Summarise report ${id}.` },
  });

/**
 * Creates batches once: an invalid one, and one that goes on. Returns the id of one that has ended with a refused
 * request.
 */
export async function sampleBatches({ gateway }: ConsoleRig): Promise<string> {
  const { batches, files } = gateway.client({ apiKey: KEY });
  const [made] = (await batches.list()).data.filter(({ metadata }) => metadata?.name === "Nightly summaries");
  if (made) return made.id;
  const begin = async (name: string, lines: string[]) => {
    const file = await files.create({ file: new File([lines.join("\n")], "requests.jsonl"), purpose: "batch" });
    return batches.create({
      input_file_id: file.id,
      endpoint: "/v1/responses",
      completion_window: "24h",
      metadata: { name },
    });
  };
  const numbers = Array.from({ length: 12 }, (_, index) => `report-${index + 1}`);
  const models = (number: string) => (number === "report-7" ? "no-such-model" : "simulator");
  const { id } = await begin(
    "Nightly summaries",
    numbers.map((number) => line(number, models(number))),
  );
  await begin("Translations", [line("first", "simulator"), line("first", "simulator"), "{"]);
  await begin(
    "Weekly reports",
    numbers.map((number, index) => line(number, index < 5 ? "simulator" : "simulator?words=400&fault=stall:120")),
  );
  await eventually(async () => (await batches.retrieve(id)).status === "completed");
  return id;
}

/** Creates webhook endpoints once. Returns the id of the one that refuses its events, after its first deliveries. */
export async function sampleWebhooks({ gateway }: ConsoleRig, { accepting, failing }: Hooks): Promise<string> {
  const { webhooks, responses } = gateway.client({ apiKey: KEY });
  const [made] = (await webhooks.list()).data.filter(({ name }) => name === "Reports");
  if (made) return made.id;
  await webhooks.create({
    name: "Orders",
    url: accepting,
    event_types: ["response.completed", "response.failed", "batch.completed"],
  });
  const { id } = await webhooks.create({ name: "Reports", url: failing, event_types: ["response.completed"] });
  for (let index = 0; index < 2; index += 1) {
    await responses.create({ model: "simulator", input: "Summarise the report.", background: true });
  }
  await eventually(async () => {
    const answer = await gateway.fetch(`${gateway.url}/v1/webhook_endpoints/${id}/deliveries`, {
      headers: { authorization: `Bearer ${KEY}` },
    });
    const { data } = (await answer.json()) as { data: { attempts: number }[] };
    return data.length === 2 && data.every(({ attempts }) => attempts > 0);
  });
  return id;
}

const TENANTS = [
  { tenant: "acme", name: "Web app", limits: { requests_per_minute: 600, tokens_per_minute: 200_000 }, share: 1 },
  { tenant: "globex", name: "Nightly batch", limits: { budget: { usd: 250, window: "month" as const } }, share: 0.6 },
  { tenant: "initech", name: "Prototype", limits: { max_concurrent_requests: 4, models: ["simulator*"] }, share: 0.2 },
];

/** Creates keys with a day of use, and running background runs. It can be called repeatedly. */
export async function sampleOperations(rig: ConsoleRig): Promise<void> {
  const { gateway } = rig;
  const { data } = await ask<{ data: { source: string }[] }>(gateway, "GET", "/v1/admin/keys");
  if (data.some(({ source }) => source === "admin_api")) return;
  for (const { tenant, name, limits, share } of TENANTS) {
    const key = await makeKey(gateway, tenant, { ...limits }, { name });
    await create(gateway, key);
    await create(gateway, key, { model: "simulator?fault=http:500" });
    await create(gateway, key, { model: "simulator-reasoning", input: "Compare three boats." });
    await create(gateway, key, { model: "simulator?words=400&fault=stall:120", background: true });
    await eventually(() => usageOf(gateway, key));
    useForADay(rig, tenant, key.id, share);
  }
  await eventually(async () => {
    const runs = await ask<{ data: object[] }>(gateway, "GET", "/v1/admin/runs");
    return runs.data.length === TENANTS.length;
  });
  requestsForADay(rig);
}

/** Writes invented usage of the last day, with more by day than by night. */
function useForADay({ gateway }: ConsoleRig, tenant: string, key: string, share: number): void {
  const now = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
  for (let hour = 1; hour < 24; hour += 1) {
    const start = now - hour * HOUR_MS;
    const load = share * (1.2 + Math.sin(((start / HOUR_MS - 9) / 12) * Math.PI)) * (1 + (hour % 5) / 12);
    const [requests, input, output] = [90, 160_000, 70_000].map((most) => Math.round(most * load));
    gateway.quotas.exec(
      quotaOf(tenant),
      `INSERT INTO used (start, key, kind, model, requests, input, cached, output, units, cost, errors, ms, durations, first_tokens)
         VALUES (?, ?, 'completions', ?, ?, ?, ?, ?, 0, 0, ?, ?, ?, ?)`,
      ...[start, key, "simulator", requests ?? 0, input ?? 0, Math.round((input ?? 0) * 0.4), output ?? 0],
      ...[hour % 3, (requests ?? 0) * 1_800],
      ...[1_500 + 60 * hour, 240 + 9 * hour].map((ms) => JSON.stringify(addDuration({}, ms))),
    );
  }
}

/** Writes invented requests of the last day into the sums of the log: few at night, and some that end with an error. */
function requestsForADay({ worker }: ConsoleRig): void {
  const now = Math.floor(Date.now() / 300_000) * 300;
  const board = objectId("board", uniqueKeyOf("Board"));
  // The simulator is faster than any model.
  worker.boards.exec(board, "DELETE FROM sums");
  for (let ago = 0; ago < 288; ago += 1) {
    const start = now - ago * 300;
    const load = 1.2 + Math.sin(((start / 3_600 - 9) / 12) * Math.PI);
    const [requests, slow] = [Math.round(40 * load) + (ago % 7), 1 + 0.3 * Math.sin(ago / 9)];
    const durations = [900, 950, 1_000, 4_000].map((ms) => ms * load * slow);
    const sums = {
      ...{
        requests,
        errors: ago % 60 < 4 ? 12 : ago % 5 === 0 ? 1 : 0,
        input: requests * 1_800,
        output: requests * 240,
      },
      ...{ generated: requests * 240, generatingMs: Math.round(requests * 3_000 * slow) },
      durations: durations.reduce(addDuration, {}),
      firstTokens: durations.map((ms) => ms / 9).reduce(addDuration, {}),
      byStatus: { completed: requests },
    };
    const sql = "INSERT OR REPLACE INTO sums (width, start, body) VALUES (60, ?, ?)";
    worker.boards.exec(board, sql, start, JSON.stringify(sums));
  }
}

function quotaOf(tenant: string): string {
  return objectId(tenant, uniqueKeyOf("Quota"));
}
