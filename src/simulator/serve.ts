import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createSimulator, type Simulator, type SimulatorOptions } from "./handler.ts";

/** A simulator behind a port. */
export type SimulatorServer = {
  /** `http://HOST:PORT`, without a slash at its end. */
  url: string;
  simulator: Simulator;
  /** Stops listening and destroys every open connection. */
  close(): Promise<void>;
};

/**
 * Serves a simulator over HTTP with node:http: each chunk of a body becomes one HTTP chunk, sent at once; a client that leaves aborts its
 * request; a lost connection is a destroyed socket. Port 0 takes a free one.
 */
export async function serveSimulator(
  options: SimulatorOptions & { port?: number; host?: string } = {},
): Promise<SimulatorServer> {
  const { port = 0, host = "127.0.0.1", ...rest } = options;
  const simulator = createSimulator(rest);
  const server = createServer({ keepAliveTimeout: 75_000, requestTimeout: 0 }, (request, response) => {
    void answer(simulator, request, response);
  });
  server.listen(port, host);
  await once(server, "listening");
  const address = server.address() as AddressInfo;
  return {
    url: `http://${host.includes(":") ? `[${host}]` : host}:${address.port}`,
    simulator,
    async close() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function answer(simulator: Simulator, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const left = new AbortController();
  outgoing.on("close", () => {
    if (!outgoing.writableFinished) left.abort(new DOMException("The client left", "AbortError"));
  });
  try {
    const response = await simulator.fetch(await toRequest(incoming, left.signal));
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    outgoing.flushHeaders();
    if (response.body !== null) await send(response.body, outgoing);
    outgoing.end();
  } catch {
    // The client left, or a fault wants the connection gone: what was sent before must still arrive.
    if (outgoing.headersSent) await flushed(outgoing);
    outgoing.destroy();
  }
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

async function send(body: ReadableStream<Uint8Array>, outgoing: ServerResponse): Promise<void> {
  const reader = body.getReader();
  // A request's signal alone is not enough: Node forgets to abort it once the request itself is garbage.
  const leave = () => void reader.cancel().catch(() => {});
  if (outgoing.destroyed) leave();
  else outgoing.once("close", leave);
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
