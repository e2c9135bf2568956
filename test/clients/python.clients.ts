import { execFile } from "node:child_process";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { text as textIn } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { IMAGE_SERVER_MODEL, type ImageServer, serveImages } from "../../dev/image-server/server.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { conformantFetch } from "../conformance/client.ts";
import { saying } from "../e2e/harmony-support.ts";
import { ADMIN_KEY, makeKey } from "../e2e/key-support.ts";
import { REPEATER, scripts, written } from "../e2e/tool-support.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { fetchAnew, freePort } from "../workerd/tools.ts";
import { installedPython, PYTHON_PACKAGES } from "./installed.ts";

/** The real Python clients in front of the gateway, as users install them. */

/** It has an environment of its own, because it requires another version of openai's package. */
const LLAMA_INDEX = ["llama-index-llms-openai==0.8.3"];

let python: string;
let llamaIndex: string;
let vllm: SimulatorServer;
let painter: ImageServer;
let guard: Server;
let worker: WorkerdProcess;
/** The variables of every gateway in this file. */
let variables: Record<string, string>;
/** The address at which a script listens for webhooks. */
let port: number;
beforeAll(async () => {
  python = await installedPython("python", ...PYTHON_PACKAGES);
  llamaIndex = await installedPython("llama-index", ...LLAMA_INDEX);
  vllm = await serveSimulator();
  port = await freePort();
  painter = await serveImages();
  guard = createServer(async (request, response) => {
    const { text } = JSON.parse(await textIn(request)) as { text: string };
    response.end(JSON.stringify({ flagged: text.includes("arson"), categories: { illicit: text.includes("arson") } }));
  }).listen(0, "127.0.0.1");
  await once(guard, "listening");
  variables = {
    VLLM_BASE_URL: `${vllm.url}/v1`,
    IMAGE_MODEL: IMAGE_SERVER_MODEL,
    IMAGE_BASE_URL: `${painter.url}/v1`,
    PASSTHROUGH_ENDPOINTS: "images/generations,images/edits",
    GUARD_URL: `http://127.0.0.1:${(guard.address() as AddressInfo).port}/`,
  };
  worker = await startWorkerd({
    ...variables,
    ALLOW_ANONYMOUS: "true",
    WEBHOOK_URLS: `http://127.0.0.1:${port}/`,
    MODEL_ALIASES: JSON.stringify({ "gpt-oss-compact": "simulator-gpt-oss" }),
    ENCRYPTION_KEYS: `k1:${Buffer.alloc(32, 7).toString("base64")}`,
  });
});
afterAll(async () => {
  await worker.close();
  await vllm.close();
  await painter.close();
  guard.close();
});

/** Runs a script with these arguments. Gives its output. */
async function run(
  script: string,
  words: string[],
  interpreter = python,
  { url } = worker,
): Promise<Record<string, unknown>> {
  const file = fileURLToPath(new URL(`python/${script}`, import.meta.url));
  const { stdout } = await promisify(execFile)(interpreter, [file, `${url}/v1`, ...words]);
  return JSON.parse(stdout);
}

/** The models that answer a decision's question with A, and the script that makes each do so. */
const DECIDING: Record<string, string[]> = {
  simulator: ["tiny-qwen3", "SCRIPT[[Answer: A‹|im_end|›]]"],
  "simulator-gpt-oss": [saying("<|channel|>final<|message|>Answer: A<|return|>")],
};

describe.each(["simulator", "simulator-gpt-oss"])("%s", (model) => {
  it("answers openai-python over a WebSocket, counts tokens and compacts", async () => {
    const said = await run("openai_client.py", [model, `${model}?tps=50&words=300`]);
    expect(said).toMatchObject({
      socket: ["You said: The first word is walrus.", "You said: And the second?"],
      steered: ["sent", "response.steer.accepted", "steered", "response.completed", true],
      compacted: ["message", "message", "compaction"],
      answer: "You said: Go on.",
    });
    const [counted, used] = said.counted as number[];
    expect(counted).toBe(used);
  });

  it("runs a batch of openai-python's, notifies its webhook endpoint, and makes a decision", async () => {
    const [deciding = "", script = ""] = DECIDING[model] ?? [];
    expect(await run("jobs.py", [model, String(port), deciding, script])).toEqual({
      types: true,
      listed: true,
      updated: "batches",
      tested: true,
      told: ["batch.completed", true],
      old_secret: "refused",
      batch: ["completed", 3, 0, "python"],
      answers: [0, 1, 2].map((no) => [`line-${no}`, 200]),
      in_list: true,
      cancelled: "completed",
      deleted: true,
      decision: [true, "billing", true],
    });
  });

  it("serves the Agents SDK over WebSockets, its compaction session, and its deferred tools", async () => {
    const { socket, answer, kept, found } = await run("agents_sdk.py", [model]);
    const told = "The tool get_weather returned: sunny in city";
    expect(socket).toEqual([told, told, told, told]);
    expect(answer).toBe(told);
    expect(kept).toContain("compaction");
    expect(found).toBe("The tool deep_weather returned: waves in city");
  });
});

it("gives openai-python a key's usage of each kind", async () => {
  await using counting = await startWorkerd({ ...variables, ADMIN_KEY }).then((started) => ({
    ...started,
    [Symbol.asyncDispose]: started.close,
  }));
  const admin = { url: counting.url, fetch: conformantFetch(fetchAnew) };
  const { value } = await makeKey(admin, "used", {});
  expect(await run("usage.py", ["simulator", IMAGE_SERVER_MODEL, value], python, counting)).toEqual({
    completions: 1,
    images: 1,
    moderations: 1,
    vector_stores: true,
    costs: "page",
  });
});

const SAID = "<|channel|>final<|message|>";

it("draws and changes images for openai-python and the Agents SDK, and moderates texts", async () => {
  const calls = (args: object) =>
    scripts(written("image_generation", JSON.stringify(args)), `${SAID}Here it is.<|return|>`);
  const drawing = calls({ prompt: "a red circle" });
  const editing = calls({ prompt: "a blue circle", action: "edit" });
  expect(await run("images.py", [REPEATER, drawing, editing])).toEqual({
    generated: true,
    edited: true,
    events: ["in_progress", "generating", "completed"],
    drawn: ["completed", "64x64", "generate", true],
    file: true,
    changed: ["completed", "edit", true],
    agents: [true, "Here it is."],
    moderations: [
      [true, true, false],
      [false, false, false],
    ],
    blocked: ["incomplete", "content_filter", true],
  });
});

/**
 * For each engine: the model, an input for which it searches for owls and cites the results, and an input without a
 * search.
 */
const SEARCHING: Record<string, string[]> = {
  chat: ["simulator", "Use file_search for `owls`", "Thanks."],
  "gpt-oss": [
    REPEATER,
    scripts(written("file_search", '{"queries":["owls"]}'), `${SAID}They hoot【0:0†source】.<|return|>`),
    scripts(`${SAID}You said: Thanks.<|return|>`),
  ],
};

describe.each(Object.entries(SEARCHING))("with a model on %s", (_, words) => {
  const owls = ["owls.md", "Owls hoot at night."];
  const cite = ["file_citation", "owls.md", true, expect.any(Number)];

  it("stores and searches files for openai-python's helpers, and for the models of the Agents SDK and LangChain", async () => {
    const said = await run("files.py", words);
    expect(said).toMatchObject({
      file: ["processed", 19, "Owls hoot at night."],
      listed: true,
      upload: ["completed", true],
      added: ["completed", "completed", null],
      batch: ["completed", 3, 3],
      of_batch: ["completed", "completed", "completed"],
      found: [[...owls, { about: "owls" }]],
      filtered: ["bread.md"],
      content: ["Owls hoot at night."],
      counts: { completed: 5, total: 5 },
      agents_events: ["in_progress", "searching", "completed"].map((each) => `response.file_search_call.${each}`),
      agents_again: "You said: Thanks.",
      deleted: true,
    });
    const results = [[...owls, { about: "owls" }]];
    const agents = { results, cites: [cite] };
    expect(said.agents).toEqual([agents, agents]);
    const langchain = { ...agents, common: [["citation", "owls.md"]], again: "You said: Thanks." };
    expect(said.langchain).toEqual([langchain, langchain]);
  });

  it("searches files for llama-index's model, by its built-in tool", async () => {
    expect(await run("llama_index_search.py", words, llamaIndex)).toEqual({
      results: [owls],
      cites: [[cite], [cite]],
      again: ["You said: Thanks.", "You said: Thanks."],
    });
  });
});
