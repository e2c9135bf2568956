import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { errorBody, VllmError } from "./errors.ts";
import { createSimulator, type Simulator, type SimulatorOptions } from "./handler.ts";

/** A simulator behind a port. */
export type SimulatorServer = {
  /** `http://HOST:PORT`, without a slash at its end. */
  url: string;
  simulator: Simulator;
  /**
   * SIGTERM, as a vLLM without `--shutdown-timeout` handles it: it stops listening, and running answers send nothing
   * more. Resolves when all connections are closed.
   */
  terminate(): Promise<void>;
  /** The EngineCore dies: running answers end with vLLM's own error, and the server stops listening. */
  crashEngine(): Promise<void>;
  /** Stops listening and destroys every open connection. */
  close(): Promise<void>;
};

/** The state of a server, and the running answers that it affects. */
type Life = { death?: "terminated" | "engine crashed"; mourners: Set<() => void> };

const ENGINE_ERROR = errorBody(
  new VllmError(500, "EngineCore encountered an issue. See stack trace (above) for the root cause."),
  false,
);

/**
 * Serves a simulator over HTTP with node:http. Each chunk of a body becomes one HTTP chunk and is sent at once. A
 * client that disconnects aborts its request. ConnectionLost destroys the socket. Port 0 takes a free port.
 */
export async function serveSimulator(
  options: SimulatorOptions & { port?: number; host?: string } = {},
): Promise<SimulatorServer> {
  const { port = 0, host = "127.0.0.1", ...rest } = options;
  const simulator = createSimulator(rest);
  const life: Life = { mourners: new Set() };
  const server = createServer({ keepAliveTimeout: 75_000, requestTimeout: 0 }, (request, response) => {
    // A connection that was already open may outlive the listener.
    if (life.death === undefined) void answer(simulator, request, response, life);
    else request.socket.destroy();
  });
  server.listen(port, host);
  await once(server, "listening");
  const address = server.address() as AddressInfo;
  return {
    url: `http://${host.includes(":") ? `[${host}]` : host}:${address.port}`,
    simulator,
    async terminate() {
      await die(server, life, "terminated");
    },
    async crashEngine() {
      await die(server, life, "engine crashed");
    },
    async close() {
      // The server may have stopped listening before.
      const closed = server.listening ? once(server, "close") : undefined;
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

/** Refuses new connections without waiting for those that are open, and ends what they are waiting for. */
async function die(server: Server, life: Life, death: NonNullable<Life["death"]>): Promise<void> {
  life.death ??= death;
  server.close();
  server.closeIdleConnections();
  for (const mourn of life.mourners) mourn();
  // Node closes the port before its next tick.
  await new Promise((resolve) => setImmediate(resolve));
}

async function answer(
  simulator: Simulator,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  life: Life,
): Promise<void> {
  const left = new AbortController();
  const mourn = () => left.abort(new DOMException("The server died", "AbortError"));
  life.mourners.add(mourn);
  outgoing.on("close", () => {
    life.mourners.delete(mourn);
    if (!outgoing.writableFinished) left.abort(new DOMException("The client left", "AbortError"));
  });
  try {
    const response = await simulator.fetch(await toRequest(incoming, left.signal));
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    outgoing.flushHeaders();
    if (response.body !== null) await send(response.body, outgoing, left.signal);
    if (life.death === undefined) outgoing.end();
    else lastWords(outgoing, life.death);
  } catch {
    if (life.death !== undefined) {
      lastWords(outgoing, life.death);
      return;
    }
    // The client disconnected, or a fault destroys the connection. The bytes that were sent before must still arrive.
    if (outgoing.headersSent) await flushed(outgoing);
    outgoing.destroy();
  }
}

/** Sends the last bytes of a dying server to a client that waits for an answer: its error, or nothing and no end. */
function lastWords(outgoing: ServerResponse, death: NonNullable<Life["death"]>): void {
  if (death === "terminated") return;
  const error = JSON.stringify(ENGINE_ERROR);
  if (outgoing.headersSent) outgoing.end(`data: ${error}\n\ndata: [DONE]\n\n`);
  else outgoing.writeHead(500, { "content-type": "application/json" }).end(error);
}

async function toRequest(incoming: IncomingMessage, signal: AbortSignal): Promise<Request> {
  const parts: Buffer<ArrayBuffer>[] = [];
  for await (const part of incoming) parts.push(part as Buffer<ArrayBuffer>);
  const headers = new Headers();
  for (const [name, values] of Object.entries(incoming.headersDistinct)) {
    for (const value of values ?? []) headers.append(name, value);
  }
  const method = incoming.method ?? "GET";
  const body = method === "GET" || method === "HEAD" ? null : Buffer.concat(parts);
  return new Request(new URL(incoming.url ?? "/", "http://simulator"), { method, headers, body, signal });
}

/** Sends a body as it comes, until it ends or `left` is aborted. */
async function send(body: ReadableStream<Uint8Array>, outgoing: ServerResponse, left: AbortSignal): Promise<void> {
  const reader = body.getReader();
  // The request's signal alone is not enough: Node does not abort it after the request itself was garbage-collected.
  const leave = () => void reader.cancel().catch(() => {});
  if (left.aborted) leave();
  else left.addEventListener("abort", leave, { once: true });
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    if (!outgoing.write(value)) await drained(outgoing);
  }
}

async function flushed(outgoing: ServerResponse): Promise<void> {
  // Node holds writes back until the next tick.
  await new Promise((resolve) => setImmediate(resolve));
  if (outgoing.writableLength > 0 && !outgoing.destroyed) await drained(outgoing);
}

function drained(outgoing: ServerResponse): Promise<void> {
  if (outgoing.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    function onReady(): void {
      outgoing.off("drain", onReady);
      outgoing.off("close", onReady);
      resolve();
    }
    outgoing.on("drain", onReady);
    outgoing.on("close", onReady);
  });
}
