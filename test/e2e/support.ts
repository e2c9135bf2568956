import OpenAI from "openai";
import { isObject, type JsonObject } from "../../dev/simulator/json.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { type ApiDescription, descriptionOf } from "../conformance/api-description.ts";
import { type ConformantFetch, conformantFetch } from "../conformance/client.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import type { ObjectStorage } from "../workerd/storage.ts";
import { fetchAnew } from "../workerd/tools.ts";

/** A running Worker in front of a simulated vLLM. Real clients reach it over real HTTP. */
export interface Gateway {
  /** `http://127.0.0.1:PORT`. */
  url: string;
  /** A `fetch` that checks every answer against the API's own types and ordering rules. */
  fetch: ConformantFetch;
  openai: OpenAI;
  /** The simulated vLLM, with its requests. */
  vllm: SimulatorServer;
  /** The storage of its homes. */
  storage: ObjectStorage;
  /** The storage of its other objects: keys, usage, files, and webhooks. */
  keys: ObjectStorage;
  quotas: ObjectStorage;
  fileDirectories: ObjectStorage;
  fileBytes: ObjectStorage;
  webhooks: ObjectStorage;
  /** Resident memory of its process, in MB (Linux). */
  memory(): number;
  /** The Worker's whole output. */
  logs(): string;
  /** Makes another client, such as one with another key or option. */
  client(options: Partial<ConstructorParameters<typeof OpenAI>[0]>): OpenAI;
  /** Sends a body unchanged. */
  post(body: unknown, headers?: Record<string, string>): Promise<Response>;
  /** Waits for the checks of all answers, throws their violations, and stops everything. */
  close(): Promise<void>;
}

type Variables = Record<string, string>;

/** The date in every system message of gpt-oss, unless a test sets another. */
export const DATE = "2026-01-02";

/**
 * Starts a gateway on plain `workerd`. `vars` are the Worker's variables besides the simulator's URL. It reads PDF and other
 * formats only with `readsFormats`. The client does not retry.
 */
export async function startGateway(vars: Variables = {}, readsFormats = false): Promise<Gateway> {
  const vllm = await serveSimulator();
  const worker = await startWorkerd(variables(vllm, vars), { readsFormats });
  return gatewayAt(worker, vllm, await descriptionOf(worker.url));
}

/** The gateways for all test files of this process, by their kinds. */
const running = new Map<string, Promise<[WorkerdProcess, SimulatorServer, ApiDescription]>>();

/**
 * Joins the running gateway, which the first file of a process starts: for facts that need no variable, and no process
 * of their own. All clients are one tenant. The simulator has forgotten earlier files, but their stored data is there.
 * The transport is that of `npm start`. Closing throws the violations; the gateway runs until the process ends.
 */
export function joinGateway(): Promise<Gateway> {
  return joinRunning("plain", { HARMONY_START_DATE: DATE });
}

/** Joins the running gateway of a kind, all of which have the same variables (`joinGateway`). */
export async function joinRunning(kind: string, vars: Variables, readsFormats = false): Promise<Gateway> {
  const started = running.get(kind) ?? startRunning(vars, readsFormats);
  running.set(kind, started);
  const [worker, vllm, description] = await started;
  vllm.simulator.clear();
  const before = worker.logs().length;
  const stays = { close: async () => {} };
  return gatewayAt(
    { ...worker, logs: () => worker.logs().slice(before), ...stays },
    { ...vllm, ...stays },
    description,
  );
}

async function startRunning(
  vars: Variables,
  readsFormats: boolean,
): Promise<[WorkerdProcess, SimulatorServer, ApiDescription]> {
  const vllm = await serveSimulator();
  const worker = await startWorkerd(variables(vllm, { VLLM_TRANSPORT: "socket", ...vars }), { readsFormats });
  // vitest ends its processes by this signal, at which Node does not emit `exit`.
  process.once("SIGTERM", () => process.exit());
  return [worker, vllm, await descriptionOf(worker.url)];
}

function variables(vllm: SimulatorServer, vars: Variables): Variables {
  return { VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", PROMPT_CACHE_SAMPLE: "0", ...vars };
}

/**
 * A gateway whose Worker and model server already run. Closing it ends both. With a description, all exchanges of its
 * clients are checked against it.
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
 * Polls until `condition` gives a truthy value, less often with time. Throws after two minutes: that is no fact, but
 * the end of a test that hangs.
 */
export async function eventually<T>(condition: () => T | Promise<T>, timeoutMs = 120_000): Promise<NonNullable<T>> {
  const start = Date.now();
  for (;;) {
    const value = await condition();
    if (value) return value;
    const waited = Date.now() - start;
    if (waited > timeoutMs) throw new Error("The condition did not come true in time.");
    await new Promise((resolve) => setTimeout(resolve, Math.min(10 + waited / 8, 200)));
  }
}

/** The same text of base64 with another character near its end, all of whose bits count: those of the last one may not. */
export function altered(text: string): string {
  return `${text.slice(0, -10)}${text.at(-10) === "A" ? "B" : "A"}${text.slice(-9)}`;
}

/** The body of the last request for an answer that reached "vLLM". */
export function lastPrompt(gateway: Pick<Gateway, "vllm">): JsonObject {
  const asked = gateway.vllm.simulator.requests.findLast(({ path }) => path === "/v1/chat/completions");
  if (!isObject(asked?.body)) throw new Error("No prompt reached vLLM.");
  return asked.body;
}

/**
 * A JSON answer arrives from the model server with 16 tokens an event. With this field it arrives token by token, so
 * that it can break off at any token.
 */
export const TOKEN_BY_TOKEN = { stream_interval: 1 };
