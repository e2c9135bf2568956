import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { newSeed, randomFrom } from "../random.ts";
import { startWorkerd } from "../workerd/process.ts";
import { freePort, root, untilReady } from "../workerd/tools.ts";
import { create, hasEnded, type Reader, resume, streamOf } from "./reader.ts";

/**
 * `npm run soak -- KILLS`: kills the gateway and the model server with SIGKILL, alternately and at random moments, in
 * the middle of background streams whose readers return. Prints its seed and its counts; ends with 1 when a byte was
 * lost, repeated or changed. SEED repeats a run's choices, not its moments.
 */

const KILLS = Number(process.argv[2] ?? 1_000);
const STREAMS = 24;
/** The maximum time without a model server, in milliseconds. */
const OUTAGE_MS = 1_500;

const WORDS = "Grüße 🦜 你好, once more. ".repeat(6);
/** The requests, whose answers must be the same with and without kills. */
const REQUESTS = [
  { kind: "chat", body: { model: "simulator?tps=60&words=90", input: "Go on." } },
  { kind: "chat, with reasoning", body: { model: "simulator-reasoning?tps=40", input: WORDS } },
  { kind: "chat, JSON schema", body: { model: "simulator?tps=20", input: "Hello!", text: { format: schemaOf(30) } } },
  { kind: "gpt-oss", body: { model: "simulator-gpt-oss?tps=60", input: WORDS } },
] as const;

function schemaOf(count: number) {
  const names = Array.from({ length: count }, (_, index) => `field${index}`);
  const properties = Object.fromEntries(names.map((name) => [name, { type: "string" }]));
  const schema = { type: "object", properties, required: names, additionalProperties: false };
  return { type: "json_schema", name: "fields", schema };
}

interface Run extends Reader {
  request: (typeof REQUESTS)[number];
  connections: number;
}

const random = randomFrom(newSeed("soak"));
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

const modelPort = await freePort();
let model: ChildProcess | undefined;
async function startModel(): Promise<void> {
  model = spawn(process.execPath, [join(root, "dev/simulator/main.ts")], {
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, PORT: String(modelPort) },
  });
  await untilReady(model, `http://127.0.0.1:${modelPort}/health`);
}
async function killModel(): Promise<void> {
  const dying = model;
  const gone = new Promise((resolve) => dying?.once("exit", resolve));
  dying?.kill("SIGKILL");
  await gone;
}
process.on("exit", () => model?.kill("SIGKILL"));
await startModel();
const gateway = await startWorkerd({ VLLM_BASE_URL: `http://127.0.0.1:${modelPort}/v1`, ALLOW_ANONYMOUS: "true" });

const runs: Run[] = [];
let killing = true;

/** One client, which begins streams one after another, and returns to each until it has the whole stream. */
async function client(): Promise<void> {
  while (killing) {
    const request = REQUESTS[Math.floor(random() * REQUESTS.length)] ?? REQUESTS[0];
    const run: Run = { request, id: "", text: "", connections: 1 };
    await create(gateway.url, run, request.body);
    // A client that has no id yet has nothing to return to.
    if (run.id === "") {
      await pause(50);
      continue;
    }
    runs.push(run);
    while (!hasEnded(run)) {
      await resume(gateway.url, run);
      run.connections += 1;
      if (!hasEnded(run)) await pause(50);
    }
  }
}

const clients = Array.from({ length: STREAMS }, client);
const kills = { gateway: 0, "model server": 0 };
for (let kill = 0; kill < KILLS; kill += 1) {
  await pause(150 + random() * 700);
  if (random() < 0.5) {
    kills.gateway += 1;
    await gateway.kill();
    await gateway.restart();
  } else {
    kills["model server"] += 1;
    await killModel();
    await pause(random() * OUTAGE_MS);
    await startModel();
  }
  if ((kill + 1) % 50 === 0) console.log(`${kill + 1} kills, ${runs.filter(hasEnded).length} streams ended`);
}
killing = false;
await Promise.all(clients);

// The output of each stream without kills.
const expected = new Map<string, string>();
for (const request of REQUESTS) {
  const whole: Reader = { id: "", text: "" };
  await create(gateway.url, whole, request.body);
  expected.set(request.kind, answerOf(whole));
}

const counts = { streams: 0, connections: 0, bytes: 0, lost: 0, repeated: 0, changed: 0 };
const failures = new Map<string, number>();
for (const run of runs) {
  counts.streams += 1;
  counts.connections += run.connections;
  counts.bytes += run.text.length;
  const replay: Reader = { id: run.id, text: "" };
  await resume(gateway.url, replay);
  if (run.text !== replay.text) {
    if (run.text.length < replay.text.length) counts.lost += replay.text.length - run.text.length;
    else if (run.text.length > replay.text.length) counts.repeated += run.text.length - replay.text.length;
    else counts.changed += 1;
    console.log(
      `${run.id} (${run.request.kind}): its reader has ${run.text.length} bytes, a later one ${replay.text.length}`,
    );
  }
  try {
    const { response } = streamOf(run);
    if (response?.status !== "completed") {
      const why = `${run.request.kind}: ${response?.status}, ${response?.error?.message ?? ""}`;
      failures.set(why, (failures.get(why) ?? 0) + 1);
    } else if (answerOf(run) !== expected.get(run.request.kind)) {
      counts.changed += 1;
      console.log(`${run.id} (${run.request.kind}): another answer: ${answerOf(run).slice(0, 300)}`);
    }
  } catch (error) {
    counts.changed += 1;
    console.log(`${run.id} (${run.request.kind}): ${String(error).slice(0, 500)}`);
  }
}
console.log({ kills, ...counts });
console.log("failed:", failures.size === 0 ? "none" : Object.fromEntries(failures));
await gateway.close();
process.exit(counts.lost + counts.repeated + counts.changed > 0 ? 1 : 0);

/** The text of a stream's messages, by its deltas and by its last event, which must be equal. */
function answerOf(reader: Reader): string {
  const { response, events } = streamOf(reader);
  const said = new Map<number, string>();
  for (const event of events) {
    if (event.type !== "response.output_text.delta") continue;
    said.set(event.output_index, (said.get(event.output_index) ?? "") + event.delta);
  }
  const messages = (response?.output ?? []).filter((item) => item.type === "message");
  const texts = messages.map(({ content }) => content.map((part) => ("text" in part ? part.text : "")).join(""));
  const deltas = [...said.values()];
  if (JSON.stringify(texts) !== JSON.stringify(deltas)) throw new Error("The deltas are not the text.");
  return texts.join("\n");
}
