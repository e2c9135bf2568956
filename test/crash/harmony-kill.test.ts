import { afterAll, beforeAll, expect, it } from "vitest";
import { isObject } from "../../dev/simulator/json.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { eventually } from "../e2e/support.ts";
import { newSeed, randomFrom } from "../random.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { create as createAt, hasEnded, type Reader, resume as resumeAt, streamOf } from "./reader.ts";

/** A gpt-oss whose server really dies: it continues after the exact token at which its log ends. */

let vllm: SimulatorServer;
let worker: WorkerdProcess;
beforeAll(async () => {
  vllm = await serveSimulator();
  worker = await startWorkerd({ VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true" }, { through: "serve" });
});
afterAll(async () => {
  await worker.close();
  await vllm.close();
});

/** A client that repeats a request when the server tells it to. */
interface Asking extends Reader {
  request: object;
}

const create = (reader: Asking) => createAt(worker.url, reader, reader.request);
const resume = (reader: Reader) => resumeAt(worker.url, reader);

/** Checks a stream from its first event to its last by the rules of every stream. Gives its output without ids. */
function saidBy(reader: Reader): object {
  expect(reader.text).not.toMatch(/^data: \[(?!DONE)/m);
  const { response, events } = streamOf(reader);
  expect(events.filter(({ type }) => /^response\.(completed|incomplete|failed)$/.test(type))).toHaveLength(1);
  const said: string[] = [];
  for (const event of events) {
    if ("delta" in event && "output_index" in event) {
      said[event.output_index] = (said[event.output_index] ?? "") + event.delta;
    }
  }
  const { output, usage, status } = response ?? {};
  // Without ids the number of reasoning tokens is a guess.
  const counted = usage && { input: usage.input_tokens, output: usage.output_tokens };
  const withoutIds = JSON.stringify(output).replaceAll(/"(id|call_id)":"[^"]*"/g, "");
  return { said, output: withoutIds, status, counted };
}

const ROUNDS = 4;
const STREAMS = 8;

const properties = { city: { type: "string" }, note: { type: "string" }, days: { type: "array", minItems: 8 } };
const tools = [{ type: "function", name: "get_weather", parameters: { type: "object", properties }, strict: false }];

// Reasoning, a preamble and a call; reasoning and an answer, with characters that tokens split; the same without ids; a
// second round.
const ROUND = "‹|channel|›analysis‹|message|›I shall search for it 🧿.‹|end|›‹|start|›assistant";
const REQUESTS = [
  {
    model: "simulator-gpt-oss?tps=60",
    input: `With a preamble, call get_weather. ${"Grüße 🦜 你好! ".repeat(8)}`,
    tools,
  },
  { model: "simulator-gpt-oss?tps=60", input: "Say 👩‍👩‍👧 한 🇺🇳 𓀀 and 🧿𓂀, then  \n\n some   more. ".repeat(2) },
  { model: "simulator-gpt-oss?tps=60&token_ids=0", input: "No ids, only text: 👩‍👩‍👧 한 🇺🇳 𓀀 and 🧿𓂀. ".repeat(3) },
  {
    model: "simulator-gpt-oss?tps=60&script=user",
    input: `${ROUND}‹|channel|›commentary to=browser.search‹|message|›{}‹|call|›\u001e${ROUND}‹|channel|›final‹|message|›${"Nothing 🦜 found. ".repeat(12)}‹|return|›`,
  },
];

it(`kill -9 in the middle of ${ROUNDS * STREAMS} background streams loses and repeats no token`, async () => {
  const random = randomFrom(newSeed("gpt-oss streams"));
  const readers: Asking[] = [];
  let reading: Promise<void>[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const begun = Array.from({ length: STREAMS }, (_, index) => ({
      request: REQUESTS[index % REQUESTS.length] ?? {},
      id: "",
      text: "",
    }));
    reading.push(...begun.map(create));
    readers.push(...begun);
    await eventually(() => begun.every(({ id }) => id !== ""));
    // Most streams are in the middle. The others may be anywhere.
    await eventually(() => begun.filter(({ text }) => text.includes(".delta")).length > (2 / 3) * STREAMS);
    await new Promise((resolve) => setTimeout(resolve, random() * 1_000));
    await worker.kill();
    await Promise.all(reading);
    await worker.restart();
    reading = readers.filter((reader) => !hasEnded(reader)).map(resume);
  }
  await Promise.all(reading);
  // Only a prompt that ends with sampled tokens is sent as token ids.
  const continued = vllm.simulator.requests.filter(({ body }) => isObject(body) && Array.isArray(body.prompt));

  const whole = REQUESTS.map((request) => ({ request, id: "", text: "" }));
  await Promise.all(whole.map(create));
  const expected = new Map<object, object>(whole.map((reader) => [reader.request, saidBy(reader)]));
  const replays = readers.map(({ request, id }) => ({ request, id, text: "" }));
  await Promise.all(replays.map(resume));
  for (const [index, reader] of readers.entries()) {
    expect(hasEnded(reader)).toBe(true);
    expect(reader.text).toBe(replays[index]?.text);
    expect(saidBy(reader)).toEqual(expected.get(reader.request));
  }
  // Most must have been cut off in the middle: otherwise the test proves nothing.
  expect(continued.length).toBeGreaterThan((ROUNDS * STREAMS) / 2);
});
