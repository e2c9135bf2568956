import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import OpenAI from "openai";
import { descriptionOf } from "../conformance/api-description.ts";
import { type ConformantFetch, conformantFetch } from "../conformance/client.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";

/** A Worker in front of a server that repeats recorded output of vLLM. */

/** One answer of the model server: the events of a stream, which may break off after them, or a status with a body. */
export type Reply =
  | { events: Iterable<object> | AsyncIterable<object>; breaksOff?: boolean }
  | { status: number; body: object };

// biome-ignore lint/suspicious/noExplicitAny: bodies as vLLM gets them, of which each test looks at something else.
export type Asked = Record<string, any>;

export interface ScriptedGateway {
  url: string;
  openai: OpenAI;
  fetch: ConformantFetch;
  /** The bodies of the model server's requests since the last `replies`, oldest first. */
  asked: Asked[];
  worker: WorkerdProcess;
  /** The Worker's whole output. */
  logs(): string;
  /** Sets its answers from now on, one after another. The last one is repeated. */
  replies(...replies: (Reply | ((body: Asked) => Reply))[]): void;
  post(body: object): Promise<Response>;
  close(): Promise<void>;
}

export async function startScripted(vars: Record<string, string> = {}): Promise<ScriptedGateway> {
  const asked: Asked[] = [];
  let script: (Reply | ((body: Asked) => Reply))[] = [];
  const server = createServer((request, response) => {
    void answer(request, response, (body) => {
      asked.push(body);
      const reply = script[Math.min(asked.length, script.length) - 1] ?? { status: 500, body: {} };
      return typeof reply === "function" ? reply(body) : reply;
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const worker = await startWorkerd(
    {
      VLLM_BASE_URL: `http://127.0.0.1:${port}/v1`,
      ALLOW_ANONYMOUS: "true",
      ...vars,
    },
    { readsFormats: false },
  );
  const fetch = conformantFetch(undefined, await descriptionOf(worker.url));
  return {
    url: worker.url,
    worker,
    fetch,
    openai: new OpenAI({ apiKey: "any", baseURL: `${worker.url}/v1`, maxRetries: 0, fetch }),
    asked,
    logs: () => worker.logs(),
    replies(...replies) {
      asked.length = 0;
      script = replies;
    },
    post: (body) =>
      fetch(`${worker.url}/v1/responses`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      }),
    async close() {
      try {
        await fetch.settled();
      } finally {
        await worker.close();
        server.closeAllConnections();
        server.close();
      }
    },
  };
}

async function answer(request: IncomingMessage, response: ServerResponse, reply: (body: Asked) => Reply) {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  if (request.url === "/v1/models") {
    const card = {
      id: MODEL,
      object: "model",
      created: 1,
      owned_by: "vllm",
      root: "Qwen/Qwen3-8B",
      max_model_len: 4096,
    };
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ object: "list", data: [card] }));
    return;
  }
  if (request.method === "GET") {
    // Questions about its kind and its health.
    response.writeHead(404, { "content-type": "application/json" });
    response.end("{}");
    return;
  }
  const said = reply(JSON.parse(Buffer.concat(chunks).toString()) as Asked);
  if ("status" in said) {
    response.writeHead(said.status, { "content-type": "application/json" });
    response.end(JSON.stringify(said.body));
    return;
  }
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
  for await (const event of said.events) response.write(`data: ${JSON.stringify(event)}\n\n`);
  if (said.breaksOff) response.socket?.destroySoon();
  else response.end("data: [DONE]\n\n");
}

export const MODEL = "scripted";

/** A chunk of vLLM 0.32's chat completions. */
export function chunk(delta: object, finish: string | null = null, entries?: object[]): object {
  const logprobs = entries ? { content: entries } : null;
  const choice = { index: 0, delta, logprobs, finish_reason: finish, stop_reason: null, token_ids: null };
  return { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: MODEL, choices: [choice] };
}

/** A stream of vLLM: the role, the deltas, the finish reason, and the usage. */
export function stream(deltas: object[], finish: string, usage: object = { prompt_tokens: 10, completion_tokens: 5 }) {
  const last = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: MODEL, choices: [], usage };
  const chunks = deltas.map((delta) => ("choices" in delta ? delta : chunk(delta)));
  return { events: [chunk({ role: "assistant", content: "" }), ...chunks, chunk({}, finish), last] };
}

/** A streamed call of vLLM: its name, then its arguments in pieces. */
export function call(index: number, name: string | undefined, ...pieces: string[]): object[] {
  const head = {
    index,
    id: `chatcmpl-tool-${index}`,
    type: "function",
    function: { ...(name !== undefined && { name }) },
  };
  return [
    { content: null, tool_calls: [head] },
    ...pieces.map((text) => ({ content: null, tool_calls: [{ index, function: { arguments: text } }] })),
  ];
}

/** An error of vLLM, in a body or in a stream. */
export function fault(code: number, message: string, param: string | null = null) {
  return { error: { message, type: code === 400 ? "BadRequestError" : "InternalServerError", param, code } };
}
