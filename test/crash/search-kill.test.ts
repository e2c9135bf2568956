import OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { IMAGE_SERVER_MODEL, type ImageServer, serveImages } from "../../dev/image-server/server.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { eventually } from "../e2e/support.ts";
import { newSeed, randomFrom } from "../random.ts";
import { type EmbeddingServer, serveEmbeddings } from "../tools/embedding-server.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { create as createAt, hasEnded, type Reader, resume as resumeAt, streamOf } from "./reader.ts";

/** A server that really dies during searches and drawings. Each call and each result is in its response once. */

/** `KILLS=100 npx vitest run test/crash/search-kill.test.ts` shows more of them. */
const KILLS = Number(process.env.KILLS ?? 3);
const STREAMS = 6;

/** The time of a query's embedding. Milliseconds. */
const EMBEDDING_MS = 300;

let simulator: SimulatorServer;
let embeddings: EmbeddingServer;
let painter: ImageServer;
/** Holds the drawings back. */
let drawing: Promise<void> | undefined;
let worker: WorkerdProcess;
let store: string;
beforeAll(async () => {
  simulator = await serveSimulator();
  embeddings = await serveEmbeddings(64);
  painter = await serveImages({ answer: () => drawing?.then(() => undefined) });
  const variables = {
    ...{ IMAGE_MODEL: IMAGE_SERVER_MODEL, IMAGE_BASE_URL: `${painter.url}/v1` },
    ...{ VLLM_BASE_URL: `${simulator.url}/v1`, ALLOW_ANONYMOUS: "true" },
    ...{ EMBEDDINGS_BASE_URL: embeddings.url, EMBEDDINGS_MODEL: "embedder" },
  };
  worker = await startWorkerd(variables, { through: "serve" });
  const openai = new OpenAI({ baseURL: `${worker.url}/v1`, apiKey: "none", fetch: fetchAnew });
  const file = await openai.files.create({ file: new File(["Owls hoot."], "owls.md"), purpose: "assistants" });
  ({ id: store } = await openai.vectorStores.create({ name: "owls" }));
  await openai.vectorStores.files.createAndPoll(store, { file_id: file.id }, { pollIntervalMs: 20 });
  embeddings.fault = () => new Promise((resolve) => setTimeout(() => resolve(false), EMBEDDING_MS));
});
afterAll(async () => {
  await worker.close();
  await embeddings.stop();
  await painter.close();
  await simulator.close();
});

interface Searching extends Reader {
  query: string;
}

const create = (reader: Searching) =>
  createAt(worker.url, reader, {
    model: "simulator?tps=60&ttft=100",
    input: `Use file_search for \`${reader.query}\``,
    tools: [{ type: "file_search", vector_store_ids: [store] }],
    include: ["file_search_call.results"],
  });
const resume = (reader: Reader) => resumeAt(worker.url, reader);

/** The number of embeddings of a response's query. */
const embeddedOf = ({ query }: Searching) => embeddings.answered.get(query) ?? 0;

it(`kill -9 in the middle of searches, ${KILLS} times, leaves each response with one search and its results`, async () => {
  const random = randomFrom(newSeed("searches"));
  const readers: Searching[] = [];
  let reading: Promise<void>[] = [];
  for (let kill = 0; kill < KILLS; kill += 1) {
    const begun = Array.from({ length: STREAMS }, (_, index) => ({ id: "", text: "", query: `owls-${kill}-${index}` }));
    reading.push(...begun.map(create));
    readers.push(...begun);
    await eventually(() => begun.every(({ id }) => id !== ""));
    // Every second kill comes during a search, the others at any moment.
    if (kill % 2 === 0) await eventually(() => begun.some(({ text }) => text.includes("file_search_call.searching")));
    await new Promise((resolve) => setTimeout(resolve, random() * (kill % 2 === 0 ? EMBEDDING_MS : 3_000)));
    await worker.kill();
    await Promise.all(reading);
    await worker.restart();
    reading = readers.filter((reader) => !hasEnded(reader)).map(resume);
  }
  // Another one without a kill.
  const last = { id: "", text: "", query: "owls-unharmed" };
  readers.push(last);
  await Promise.all([...reading, create(last)]);

  const replays = readers.map((reader) => ({ ...reader, text: "" }));
  for (const replay of replays) await resume(replay);
  let repeated = 0;
  for (const [index, reader] of readers.entries()) {
    expect(hasEnded(reader)).toBe(true);
    expect(reader.text).toBe(replays[index]?.text);
    const { response, events } = streamOf(reader);
    expect(events.filter(({ type }) => /^response\.(completed|incomplete|failed)$/.test(type))).toHaveLength(1);
    expect(response).toMatchObject({ status: "completed" });
    const calls = response?.output.filter((item) => item.type === "file_search_call") ?? [];
    const whole = calls.filter(({ status }) => status !== "incomplete");
    expect(whole).toHaveLength(1);
    expect(whole[0]).toMatchObject({ status: "completed", results: [{ filename: "owls.md" }] });
    for (const name of ["in_progress", "searching", "completed"]) {
      const type = `response.file_search_call.${name}`;
      expect(
        events.filter((event) => event.type === type && "item_id" in event && event.item_id === whole[0]?.id),
      ).toHaveLength(1);
    }
    if (embeddedOf(reader) > 1) repeated += 1;
    expect(response?.output.at(-1)).toMatchObject({ type: "message", status: "completed" });
  }
  console.log(JSON.stringify({ kills: KILLS, responses: readers.length, repeated }));
  // Some must have been cut off in a search: otherwise the test proves nothing.
  expect(repeated).toBeGreaterThan(0);
}, 1_800_000);

it("kill -9 while an image is drawn: it is drawn again, and its response contains it once", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  drawing = promise;
  const reader: Reader = { id: "", text: "" };
  const tools = [{ type: "image_generation", action: "generate", size: "64x64" }];
  const reading = createAt(worker.url, reader, { model: "simulator", input: "Use image_generation, please.", tools });
  await eventually(() => painter.asked.length > 0);
  await worker.kill();
  await reading;
  await worker.restart();
  resolve();
  await resume(reader);
  expect(hasEnded(reader)).toBe(true);
  expect(painter.asked).toHaveLength(2);
  const { response, events } = streamOf(reader);
  expect(response).toMatchObject({ status: "completed" });
  const images = response?.output.filter(({ type }) => type === "image_generation_call");
  expect(images).toMatchObject([{ status: "completed", size: "64x64", file_id: expect.stringMatching(/^file-/) }]);
  for (const name of ["in_progress", "generating", "completed"]) {
    expect(events.filter(({ type }) => type === `response.image_generation_call.${name}`)).toHaveLength(1);
  }
});
