import { afterEach, beforeEach, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { eventually } from "../e2e/support.ts";

/** A server that dies while it answers, as vLLM 0.32 does. */

let server: SimulatorServer;
beforeEach(async () => {
  server = await serveSimulator();
});
afterEach(() => server.close());

function ask(settings: string, stream: boolean): Promise<Response> {
  return fetch(`${server.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: `simulator?${settings}`, messages: [{ role: "user", content: "Hi" }], stream }),
  });
}

/** The rest of a stream that is in the middle of its tokens. */
async function begun(): Promise<ReadableStreamDefaultReader<string>> {
  const answer = await ask("words=1000&tps=100", true);
  const reader = (answer.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream()).getReader();
  await reader.read();
  while ((server.simulator.requests[0]?.deltasSent ?? 0) < 5) expect((await reader.read()).done).toBe(false);
  return reader;
}

/** Reads a stream to its end; rejects when it has none. */
async function textOf(reader: ReadableStreamDefaultReader<string>): Promise<string> {
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text;
    text += value;
  }
}

const ENGINE_ERROR = {
  error: {
    message: "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    type: "InternalServerError",
    param: null,
    code: 500,
  },
};

it("terminated, it refuses connections, and its streams are silent without an end", async () => {
  const reader = await begun();
  await server.terminate();
  await expect(fetch(`${server.url}/health`)).rejects.toMatchObject({ cause: { code: "ECONNREFUSED" } });
  expect(server.simulator.requests[0]?.state).toBe("aborted");
  // Bytes that were sent before may still arrive. Then nothing comes, no error and no end, as long as the connection
  // lives.
  const rest = textOf(reader);
  await server.close();
  await expect(rest).rejects.toThrow("terminated");
});

it("its engine dead, its streams end with vLLM's error, and it refuses connections", async () => {
  const reader = await begun();
  await server.crashEngine();
  const text = await textOf(reader);
  expect(text.endsWith(`data: ${JSON.stringify(ENGINE_ERROR)}\n\ndata: [DONE]\n\n`)).toBe(true);
  await expect(fetch(`${server.url}/health`)).rejects.toMatchObject({ cause: { code: "ECONNREFUSED" } });
});

it("its engine dead, a request for a whole answer gets the error as a 500", async () => {
  const answering = ask("ttft=60000", false);
  await eventually(() => server.simulator.requests.length > 0);
  await server.crashEngine();
  const answer = await answering;
  expect([answer.status, await answer.json()]).toEqual([500, ENGINE_ERROR]);
});
