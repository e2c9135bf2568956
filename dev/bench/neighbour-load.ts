import OpenAI from "openai";
import { WebSocket } from "ws";

/**
 * The load of one tenant, in a process of its own, until it is killed. Its arguments: the URL, a key, a model, and kinds of load. Failures
 * are what the server may answer to it.
 */

const [url = "", apiKey = "none", model = "", ...kinds] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, timeout: 60_000 });

const WORDS = Array.from({ length: 3_000 }, (_, index) => `w${(index * 7919).toString(36)}`);
const word = () => WORDS[Math.floor(Math.random() * WORDS.length)] ?? "";
const words = (count: number) => Array.from({ length: count }, word).join(" ");

/** Does `work` again and again, `clients` at a time. */
async function again(clients: number, work: () => Promise<unknown>): Promise<void> {
  const client = async () => {
    for (;;) await work().catch(() => new Promise((resolve) => setTimeout(resolve, 50)));
  };
  await Promise.all(Array.from({ length: clients }, client));
}

const file = (content: string | Uint8Array<ArrayBuffer>, name = "a.txt") => new File([content], name);

/** Opens a WebSocket, sends frames at once, and closes it after as many answers, or when the server does. */
function frames(count: number, frame: (index: number) => object, isAnswer: RegExp): Promise<void> {
  return new Promise((resolve) => {
    const headers = { authorization: `Bearer ${apiKey}` };
    const socket = new WebSocket(`${url.replace("http", "ws")}/v1/responses`, { headers });
    let answers = 0;
    socket.on("open", () => {
      for (let index = 0; index < count; index += 1) socket.send(JSON.stringify(frame(index)));
    });
    socket.on("message", (data) => {
      if (isAnswer.test(String(data)) && ++answers === count) socket.close();
    });
    socket.on("close", () => resolve());
    socket.on("error", () => resolve());
  });
}

const LOADS: Record<string, () => Promise<void>> = {
  uploads: () => again(4, () => openai.files.create({ file: file(new Uint8Array(20_000_000)), purpose: "assistants" })),
  bodies: () => again(4, () => openai.responses.create({ model, input: "a".repeat(10_000_000), store: false })),
  batches: async () => {
    const body = { model, input: "x".repeat(2_000) };
    const line = (id: number) => JSON.stringify({ custom_id: `${id}`, method: "POST", url: "/v1/responses", body });
    const lines = Array.from({ length: 2_000 }, (_, id) => line(id)).join("\n");
    const { id } = await openai.files.create({ file: file(lines, "b.jsonl"), purpose: "batch" });
    const asked = { input_file_id: id, endpoint: "/v1/responses", completion_window: "24h" } as const;
    await again(1, () => openai.batches.create(asked));
  },
  ingestion: async () => {
    const { id: store } = await openai.vectorStores.create({});
    await again(3, async () => {
      const { id } = await openai.files.create({ file: file(words(60_000)), purpose: "assistants" });
      await openai.vectorStores.files.create(store, { file_id: id });
    });
  },
  searches: async () => {
    const { id: store } = await openai.vectorStores.create({});
    const { id } = await openai.files.create({ file: file(words(60_000)), purpose: "assistants" });
    await openai.vectorStores.files.createAndPoll(store, { file_id: id });
    await again(8, () => openai.vectorStores.search(store, { query: words(16), max_num_results: 50 }));
  },
  creates: () => {
    const create = { type: "response.create", model, input: "x", store: false };
    return again(200, () =>
      frames(16, (lane) => ({ ...create, stream_id: `l${lane}` }), /response\.completed|"error"/),
    );
  },
  frames: () => {
    const steer = { type: "response.steer", previous_response_id: `resp_${"a".repeat(32)}`, input: "go" };
    return again(400, () => frames(1_000, () => steer, /./));
  },
};

/** The kinds of load, by their names. */
export const KINDS = Object.keys(LOADS);

if (import.meta.main) await Promise.all(kinds.map((kind) => LOADS[kind]?.()));
