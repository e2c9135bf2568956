import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { eventually } from "./support.ts";

/** A model server whose answers end when a test says so. */
export interface HeldServer {
  /** With `/v1`. */
  url: string;
  /** The answers in progress, the oldest first. */
  running: HeldAnswer[];
  /** The texts of all requests for answers, in the order in which they have come. */
  asked: string[];
  /** Most answers that were in progress at the same time. */
  most: number;
  /** The number of waiting requests that `/metrics` reports. */
  waiting: number;
  /** More requests than these are a 429; undefined: none is. */
  takes: number | undefined;
  /** Ends the oldest answer, once there is one. Gives the text of its request. */
  endOne(): Promise<string>;
  close(): void;
}

export interface HeldAnswer {
  /** The text of the request's last message. */
  text: string;
  end(): void;
}

const MODEL = "held";

/** `tokens`: the tokens of an answer to this text. */
export async function startHeldServer(tokens: (text: string) => number = () => 100): Promise<HeldServer> {
  const server = createServer((request, response) => void answer(request, response));
  server.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const held: HeldServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    running: [],
    asked: [],
    most: 0,
    waiting: 0,
    takes: undefined,
    async endOne() {
      const { text, end } = await eventually(() => held.running[0]);
      end();
      return text;
    },
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
  return held;

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await textOf(request);
    const json = (value: object, status = 200) => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
    };
    if (request.url === "/v1/models") {
      return json({ object: "list", data: [{ id: MODEL, object: "model", owned_by: "vllm", max_model_len: 100_000 }] });
    }
    if (request.url === "/metrics") {
      const { waiting, running } = held;
      response.writeHead(200, { "content-type": "text/plain" });
      response.end(
        `vllm:num_requests_running{engine="0"} ${running.length}.0\nvllm:num_requests_waiting{engine="0"} ${waiting}.0\n`,
      );
      return;
    }
    if (!request.url?.endsWith("/chat/completions")) return json({});
    if (held.takes !== undefined && held.running.length >= held.takes) {
      return json({ error: { message: "Too many requests.", code: 429 } }, 429);
    }
    const { messages } = JSON.parse(body) as { messages: { content: unknown }[] };
    const text = lastText(messages.at(-1)?.content);
    held.asked.push(text);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.flushHeaders();
    const leave = () => {
      held.running = held.running.filter((each) => each !== own);
    };
    const own: HeldAnswer = {
      text,
      end() {
        leave();
        const chunk = (more: object) =>
          `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", model: MODEL, ...more })}\n\n`;
        const choice = (delta: object, finish: string | null) => ({
          choices: [{ index: 0, delta, finish_reason: finish }],
        });
        const usage = { prompt_tokens: 10, completion_tokens: tokens(text), total_tokens: 10 + tokens(text) };
        response.write(chunk(choice({ role: "assistant", content: "Yes." }, null)));
        response.write(chunk(choice({}, "stop")));
        response.end(`${chunk({ choices: [], usage })}data: [DONE]\n\n`);
      },
    };
    response.once("close", leave);
    held.running.push(own);
    held.most = Math.max(held.most, held.running.length);
  }
}

async function textOf(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of request.setEncoding("utf8")) text += chunk;
  return text;
}

function lastText(content: unknown): string {
  if (typeof content === "string") return content;
  const [part] = Array.isArray(content) ? (content as { text?: string }[]) : [];
  return part?.text ?? "";
}
