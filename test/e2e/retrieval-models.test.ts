import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { eventually, type Gateway, startGateway } from "./support.ts";

/** Vector stores whose embedding server and reranker give wrong answers, or none. */

type Answer = (body: { input?: string[]; documents?: string[] }, response: ServerResponse) => void;

const json = (value: unknown, status = 200): Answer => {
  return (_, response) => send(response, value, status);
};

function send(response: ServerResponse, value: unknown, status = 200): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}

/** Texts about tea have one direction, all others another. */
const embedded: Answer = ({ input = [] }, response) => {
  const data = input.map((text, index) => ({ index, embedding: /tea/i.test(text) ? [1, 0] : [0, 1] }));
  send(response, { data, usage: { prompt_tokens: 1 } });
};

/** A reranker that prefers the last document. */
const reranked: Answer = ({ documents = [] }, response) => {
  const results = documents.map((_, index) => ({ index, relevance_score: (index + 1) / documents.length }));
  send(response, { results, usage: { total_tokens: 1 } });
};

const HANGING: Answer = () => {};

/** A text that no answer may quote. */
const WRONG: [string, Answer][] = [
  ["fails", json({ error: { message: "Out of memory." } }, 500)],
  ["answers nothing", HANGING],
  ["closes the connection", (_, response) => response.destroy()],
  ["answers another type", json([1, 2])],
  ["answers no JSON", (_, response) => response.writeHead(200).end("<html>")],
];

/** Invalid embeddings. */
const WRONG_EMBEDDINGS: [string, Answer][] = [
  ["answers too few embeddings", json({ data: [] })],
  [
    "answers too many",
    ({ input = [] }, response) => send(response, { data: [...input, "x"].map(() => ({ embedding: [1, 0] })) }),
  ],
  [
    "answers what is no number",
    ({ input = [] }, response) => send(response, { data: input.map(() => ({ embedding: [null, 1] })) }),
  ],
  [
    "answers NaN",
    ({ input = [] }, response) => {
      const embedding = Buffer.from(new Float32Array([Number.NaN, 1]).buffer).toString("base64");
      send(response, { data: input.map(() => ({ embedding })) });
    },
  ],
  [
    "answers no dimensions",
    ({ input = [] }, response) => send(response, { data: input.map(() => ({ embedding: [] })) }),
  ],
  [
    "gives all of them one place",
    ({ input = [] }, response) =>
      send(response, { data: input.length > 1 ? input.map(() => ({ index: 0, embedding: [1, 0] })) : [] }),
  ],
];

const WRONG_SCORES: [string, Answer][] = [
  ["scores documents that there are not", json({ results: [{ index: 99, relevance_score: 1 }] })],
  ["scores by words", json({ results: [{ index: 0, relevance_score: "good" }] })],
];

let answers: { "/v1/embeddings": Answer; "/v1/rerank": Answer };
let server: Server;
let gateway: Gateway;
let store: string;

beforeAll(async () => {
  answers = { "/v1/embeddings": embedded, "/v1/rerank": reranked };
  server = createServer(async (request, response) => {
    const body = await bodyOf(request);
    const path = request.url as keyof typeof answers;
    if (Object.hasOwn(answers, path)) answers[path](body, response);
    else send(response, { data: [{ id: "embedder" }, { id: "reranker" }] });
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  gateway = await startGateway({
    EMBEDDINGS_MODEL: "embedder",
    EMBEDDINGS_BASE_URL: url,
    RERANK_MODEL: "reranker",
    RERANK_BASE_URL: url,
    VLLM_CONNECT_TIMEOUT_MS: "400",
    VLLM_FIRST_BYTE_TIMEOUT_MS: "400",
    VLLM_MAX_RETRIES: "0",
  });
  ({ id: store } = await gateway.openai.vectorStores.create({}));
  for (const text of ["Tea is steeped.", "Owls hoot.", "Bread is baked."]) await add(text);
});
afterAll(async () => {
  await gateway.close();
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  answers = { "/v1/embeddings": embedded, "/v1/rerank": reranked };
});

async function bodyOf(request: IncomingMessage) {
  const text = Buffer.concat(await Array.fromAsync(request)).toString();
  return text === "" ? {} : (JSON.parse(text) as object);
}

/** Adds a file to the store. Gives its final state. */
async function add(text: string) {
  const file = await gateway.openai.files.create({ file: new File([text], "x.txt"), purpose: "assistants" });
  return gateway.openai.vectorStores.files.createAndPoll(store, { file_id: file.id }, { pollIntervalMs: 20 });
}

async function search(query: string, options: object = {}) {
  const { data } = await gateway.openai.vectorStores.search(store, { query, ...options });
  return data.map(({ content }) => content[0]?.text);
}

const FUSED = { ranking_options: { ranker: "none" as const } };

describe("a search", () => {
  it("is ordered by the reranker, unless it asks for none", async () => {
    const fused = await search("tea", FUSED);
    expect(fused[0]).toBe("Tea is steeped.");
    expect(await search("tea")).toEqual(fused.toReversed());
  });

  it.each([...WRONG, ...WRONG_SCORES])("keeps its own order while the reranker %s", async (_, answer) => {
    const fused = await search("tea", FUSED);
    answers["/v1/rerank"] = answer;
    expect(await search("tea")).toEqual(fused);
  });

  it.each([...WRONG, ...WRONG_EMBEDDINGS])("is refused while the embedding server %s", async (_, answer) => {
    answers["/v1/embeddings"] = answer;
    const error = await gateway.openai.vectorStores.search(store, { query: ["tea", "owls"] }).catch((fault) => fault);
    expect(error.status).toBeGreaterThanOrEqual(500);
    expect(error.error).toMatchObject({ message: expect.any(String), type: "server_error" });
  });

  it("is refused if the model's dimensions differ from the store's", async () => {
    answers["/v1/embeddings"] = ({ input = [] }, response) =>
      send(response, { data: input.map(() => ({ embedding: [1, 0, 0] })) });
    await expect(search("tea")).rejects.toMatchObject({ status: 409 });
  });
});

describe("a file that is added", () => {
  it.each([...WRONG, ...WRONG_EMBEDDINGS])(
    "becomes searchable when the embedding server %s no longer",
    async (_, answer) => {
      let asked = 0;
      answers["/v1/embeddings"] = (body, response) => {
        asked += 1;
        answer(body, response);
      };
      const word = `word${Math.random().toString(36).slice(2)}`;
      // The file has two chunks, and so two embeddings.
      const text = `${word} ${"tea and bread ".repeat(900)}`;
      const adding = add(text);
      await eventually(() => asked > 0);
      answers["/v1/embeddings"] = embedded;
      expect(await adding).toMatchObject({ status: "completed", last_error: null });
      const found = await search(word, { ...FUSED, max_num_results: 1 });
      expect(found[0]).toContain(word);
    },
  );
});
