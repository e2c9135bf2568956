import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { isObject } from "../../dev/simulator/json.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { freePort } from "../workerd/tools.ts";

/**
 * A model server that dies as vLLM 0.32 does: `kill` (SIGKILL: its connections break), `terminate` (SIGTERM: its port
 * closes, and open streams fall silent for ever), `abort` (the same, but they still hear that their requests were given
 * up) and `engine` (its EngineCore dies: open streams end with an error, then the port closes). Its answers are the
 * simulator's.
 */
export type Death = "kill" | "terminate" | "abort" | "engine";

export interface MortalServer {
  simulator: SimulatorServer;
  /** Its URL, with `/v1`. */
  url: string;
  /** Lets the server die after `chunks` chunks of the next answer under this model name, as soon as `seen` resolves. */
  dieAfter(model: string, chunks: number, death: Death, seen?: Promise<unknown>): void;
  /** Dies now. */
  die(death: Death): Promise<void>;
  /** True if it is dead. */
  readonly dead: boolean;
  /** Listens again on its port. */
  restart(): Promise<void>;
  /** The number of open connections to it, of its present life or an earlier one. */
  readonly open: number;
  close(): Promise<void>;
}

/** One life of the server, and its open streams. */
interface Life {
  over: Death | undefined;
  streams: Set<ServerResponse>;
}

/** The last event of an aborted answer. */
function abortedOn(path: string): string {
  const end = { index: 0, logprobs: null, finish_reason: "abort", stop_reason: null, token_ids: null };
  const chunk = path.includes("/chat/")
    ? { object: "chat.completion.chunk", choices: [{ delta: {}, ...end }] }
    : { object: "text_completion", choices: [{ text: "", ...end }] };
  return `data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`;
}

const ENGINE_DEAD =
  'data: {"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}\n\ndata: [DONE]\n\n';

export async function startMortalServer(): Promise<MortalServer> {
  const simulator = await serveSimulator();
  const plans = new Map<string, { chunks: number; death: Death; seen?: Promise<unknown> | undefined }>();
  let life: Life = { over: undefined, streams: new Set() };
  let server: Server | undefined;
  // It listens on this port again after its death.
  const port = await freePort();
  let open = 0;

  async function answer(own: Life, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    if (own.over) return void outgoing.destroy();
    const left = new AbortController();
    outgoing.on("close", () => left.abort());
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const headers = Object.fromEntries(Object.entries(incoming.headers).map(([name, value]) => [name, String(value)]));
    const { method = "GET" } = incoming;
    const request = { method, headers, signal: left.signal, ...(method === "POST" && { body }) };
    const response = await simulator.simulator.fetch(new Request(`http://vllm${incoming.url}`, request));
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    outgoing.flushHeaders();
    const sent = body.length > 0 ? (JSON.parse(body.toString()) as unknown) : undefined;
    const model = isObject(sent as never) ? String((sent as { model?: unknown }).model) : "";
    const isGeneration = incoming.url?.endsWith("/completions") === true;
    const plan = isGeneration ? plans.get(model) : undefined;
    if (plan) plans.delete(model);
    own.streams.add(outgoing);
    let written = 0;
    const reader = response.body?.getReader();
    // The request's signal alone is not enough: Node does not abort it after the request itself was garbage-collected.
    const leave = () => void reader?.cancel().catch(() => {});
    if (left.signal.aborted) leave();
    else left.signal.addEventListener("abort", leave);
    for (;;) {
      const { done = true, value: chunk } = (await reader?.read()) ?? {};
      if (done) break;
      if (plan && written === plan.chunks) {
        await plan.seen;
        await die(plan.death);
      }
      // A server that has died sends nothing.
      if (own.over) return;
      outgoing.write(chunk);
      written += 1;
    }
    own.streams.delete(outgoing);
    outgoing.end();
  }

  function listen(): Promise<void> {
    const own: Life = { over: undefined, streams: new Set() };
    life = own;
    const listening = createServer((incoming, outgoing) => {
      answer(own, incoming, outgoing).catch(() => outgoing.destroy());
    });
    server = listening;
    listening.on("connection", (socket) => {
      open += 1;
      socket.on("close", () => {
        open -= 1;
      });
    });
    return new Promise((resolve) => {
      listening.listen(port, "127.0.0.1", resolve);
    });
  }

  async function die(death: Death): Promise<void> {
    if (life.over) return;
    life.over = death;
    server?.close();
    server?.closeIdleConnections();
    if (death === "engine") for (const stream of life.streams) stream.end(ENGINE_DEAD);
    if (death === "abort") for (const stream of life.streams) stream.end(abortedOn(stream.req.url ?? ""));
    // Bytes that were written before must still arrive.
    if (death !== "terminate") setTimeout(closeAll, 10, server);
  }

  function closeAll(dying: Server | undefined): void {
    dying?.closeAllConnections();
  }

  await listen();
  const lives: (Server | undefined)[] = [server];
  return {
    simulator,
    url: `http://127.0.0.1:${port}/v1`,
    dieAfter: (model, chunks, death, seen) => void plans.set(model, { chunks, death, seen }),
    die,
    get dead() {
      return life.over !== undefined;
    },
    async restart() {
      await listen();
      lives.push(server);
    },
    get open() {
      return open;
    },
    async close() {
      for (const each of lives) {
        each?.close();
        each?.closeAllConnections();
      }
      await simulator.close();
    },
  };
}
