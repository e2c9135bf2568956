import { afterAll, beforeAll } from "vitest";
import { createSimulator, type Simulator, type SimulatorOptions } from "../../dev/simulator/handler.ts";
import { isObject, type Json, type JsonObject, parseJson } from "../../dev/simulator/json.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";

export const CHAT = "/v1/chat/completions";

export function post(path: string, body: unknown, headers: Record<string, string> = {}, signal?: AbortSignal): Request {
  return new Request(`http://vllm${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal: signal ?? null,
  });
}

export function user(text: string): JsonObject[] {
  return [{ role: "user", content: text }];
}

export function tool(name: string, properties: JsonObject = { city: { type: "string" } }): JsonObject {
  return { type: "function", function: { name, parameters: { type: "object", properties } } };
}

/** Requests a chat completion that is not streamed from a simulator, by default a new one. */
export async function chat(body: JsonObject, simulator: Simulator = createSimulator()): Promise<JsonObject> {
  const response = await simulator.fetch(post(CHAT, { model: "simulator", ...body }));
  return object((await response.json()) as Json);
}

/** Requests a streamed chat completion. Gives the data of every event. */
export async function chatEvents(body: JsonObject, simulator: Simulator = createSimulator()): Promise<string[]> {
  const response = await simulator.fetch(post(CHAT, { model: "simulator", stream: true, ...body }));
  return events(await response.text());
}

export function events(text: string): string[] {
  return text
    .split(/\r?\n\r?\n/)
    .filter((event) => event.startsWith("data: "))
    .map((event) => event.slice("data: ".length));
}

/** Parsed chunks, without `[DONE]`. */
export function chunks(data: string[]): JsonObject[] {
  return data.filter((entry) => entry !== "[DONE]").map((entry) => object(parseJson(entry)));
}

export function deltas(data: string[]): JsonObject[] {
  return chunks(data)
    .filter((chunk) => list(chunk.choices).length > 0)
    .map((chunk) => object(object(list(chunk.choices)[0]).delta));
}

/** All texts of one delta field, joined. */
export function joined(data: string[], field: string): string {
  return deltas(data)
    .map((delta) => delta[field] ?? "")
    .join("");
}

export function object(value: unknown): JsonObject {
  if (!isObject(value)) throw new TypeError(`Not an object: ${JSON.stringify(value)}`);
  return value;
}

export function list(value: unknown): Json[] {
  if (!Array.isArray(value)) throw new TypeError(`Not a list: ${JSON.stringify(value)}`);
  return value as Json[];
}

export function message(body: JsonObject): JsonObject {
  return object(object(list(body.choices)[0]).message);
}

export function finish(body: JsonObject): Json | undefined {
  return object(list(body.choices)[0]).finish_reason;
}

/** A simulator on a port, for all tests of a file. */
export function server(options: SimulatorOptions = {}): () => SimulatorServer {
  let running: SimulatorServer | undefined;
  beforeAll(async () => {
    running = await serveSimulator(options);
  });
  afterAll(() => running?.close());
  return () => {
    if (running === undefined) throw new Error("The server does not run yet");
    return running;
  };
}

/** Waits until a condition holds. Throws after a minute, which only ends a hanging test. */
export async function until(condition: () => boolean): Promise<void> {
  for (let attempt = 0; !condition(); attempt += 1) {
    if (attempt > 12_000) throw new Error("It did not happen.");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
