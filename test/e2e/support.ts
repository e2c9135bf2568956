import OpenAI from "openai";
import { isObject, type JsonObject } from "../../dev/simulator/json.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { type ApiDescription, descriptionOf } from "../conformance/api-description.ts";
import { type ConformantFetch, conformantFetch } from "../conformance/client.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import type { ObjectStorage } from "../workerd/storage.ts";
import { fetchAnew } from "../workerd/tools.ts";

/** A running Worker in front of a simulated vLLM, reached over real HTTP by a real client. */
export interface Gateway {
  /** `http://127.0.0.1:PORT`. */
  url: string;
  /** Every answer that comes through it is checked against the API's own types and ordering rules. */
  fetch: ConformantFetch;
  openai: OpenAI;
  /** What reached "vLLM". */
  vllm: SimulatorServer;
  /** What its homes have stored. */
  storage: ObjectStorage;
  /** What its other objects have: keys, what tenants have used, files, and webhooks. */
  keys: ObjectStorage;
  quotas: ObjectStorage;
  fileDirectories: ObjectStorage;
  fileBytes: ObjectStorage;
  webhooks: ObjectStorage;
  /** Resident memory of its process, in MB (Linux). */
  memory(): number;
  /** All that the Worker has printed. */
  logs(): string;
  /** Another client: another key, another option. */
  client(options: Partial<ConstructorParameters<typeof OpenAI>[0]>): OpenAI;
  /** Sends a body as it is. */
  post(body: unknown, headers?: Record<string, string>): Promise<Response>;
  /** Waits for the checks of all answers, throws their findings, and stops everything. */
  close(): Promise<void>;
}

type Variables = Record<string, string>;

/** The date in every system message of gpt-oss's, unless a test is about it. */
export const DATE = "2026-01-02";

/** Starts one on plain `workerd`; `vars` are the Worker's variables beside the simulator's URL. Retries of the client are off. */
export async function startGateway(vars: Variables = {}): Promise<Gateway> {
  const vllm = await serveSimulator();
  const worker = await startWorkerd(variables(vllm, vars));
  return gatewayAt(worker, vllm, await descriptionOf(worker.url));
}

/** What runs for all files of this process. */
let running: Promise<[WorkerdProcess, SimulatorServer, ApiDescription]> | undefined;

/**
 * Joins the running gateway, which the first file of a process starts and all others find warm: for facts that need no variable of their own, and
 * nothing of a process that only it has. The gateway has everybody as one tenant, a simulator that remembers nothing of earlier files, and what these have
 * stored. It goes over the transport that `npm start` takes. Closing it throws what was found; it runs on until the process ends.
 */
export async function joinGateway(): Promise<Gateway> {
  running ??= startRunning();
  const [worker, vllm, description] = await running;
  vllm.simulator.clear();
  const before = worker.logs().length;
  const stays = { close: async () => {} };
  return gatewayAt(
    { ...worker, logs: () => worker.logs().slice(before), ...stays },
    { ...vllm, ...stays },
    description,
  );
}

async function startRunning(): Promise<[WorkerdProcess, SimulatorServer, ApiDescription]> {
  const vllm = await serveSimulator();
  const vars = { VLLM_TRANSPORT: "socket", HARMONY_START_DATE: DATE };
  const worker = await startWorkerd(variables(vllm, vars));
  // vitest ends its processes by this signal, at which Node calls nobody who waits for the exit.
  process.once("SIGTERM", () => process.exit());
  return [worker, vllm, await descriptionOf(worker.url)];
}

function variables(vllm: SimulatorServer, vars: Variables): Variables {
  return { VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", ...vars };
}

/**
 * A gateway whose Worker and model server run already; closing it ends both. With a description, all that its clients send and get is
 * held to that.
 */
export function gatewayAt(worker: WorkerdProcess, vllm: SimulatorServer, description?: ApiDescription): Gateway {
  const { url, storage, keys, quotas, fileDirectories, fileBytes, webhooks, memory, logs } = worker;
  const fetch = conformantFetch(fetchAnew, description);
  const client: Gateway["client"] = (options) =>
    new OpenAI({ apiKey: "any", baseURL: `${url}/v1`, maxRetries: 0, fetch, ...options });
  return {
    url,
    fetch,
    vllm,
    storage,
    keys,
    quotas,
    fileDirectories,
    fileBytes,
    webhooks,
    memory,
    logs,
    client,
    openai: client({}),
    post: (body, headers = {}) =>
      fetch(`${url}/v1/responses`, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: typeof body === "string" ? body : JSON.stringify(body),
      }),
    async close() {
      try {
        await fetch.settled();
      } finally {
        await worker.close();
        await vllm.close();
      }
    },
  };
}

/**
 * Polls until `condition` gives a truthy value, the less often the longer that takes. Throws after two minutes: that is no fact, but
 * the end of a test that hangs.
 */
export async function eventually<T>(condition: () => T | Promise<T>, timeoutMs = 120_000): Promise<NonNullable<T>> {
  const start = Date.now();
  for (;;) {
    const value = await condition();
    if (value) return value;
    const waited = Date.now() - start;
    if (waited > timeoutMs) throw new Error("The condition did not come true in time.");
    await new Promise((resolve) => setTimeout(resolve, Math.min(10 + waited / 20, 200)));
  }
}

/** The body of the last request for an answer that reached "vLLM". */
export function lastPrompt(gateway: Pick<Gateway, "vllm">): JsonObject {
  const asked = gateway.vllm.simulator.requests.findLast(({ path }) => path === "/v1/chat/completions");
  if (!isObject(asked?.body)) throw new Error("No prompt reached vLLM.");
  return asked.body;
}

/** An answer that its client gets whole comes to this server 16 tokens an event. Where it is to break off at a token, it comes as a stream does. */
export const TOKEN_BY_TOKEN = { stream_interval: 1 };
