import { Connection, type ConnectionOptions } from "./connection.ts";

/** WebSockets as workerd has them. The Worker ends them itself, beside its client: no Durable Object is awake for them. */

/** Whether a request asks for a WebSocket. */
export function wantsSocket({ headers }: Request): boolean {
  return headers.get("upgrade")?.toLowerCase() === "websocket";
}

/** The answer that opens a connection, with these headers. */
export function openSocket(options: ConnectionOptions, headers: Record<string, string>): Response {
  const { 0: client, 1: server } = new WebSocketPair();
  server.accept();
  const connection = new Connection(server, options);
  server.addEventListener("message", ({ data }) => connection.receive(data));
  // A lost connection is closed with 1006, at once. A frame that the runtime refuses (1009) is an error.
  server.addEventListener("close", () => connection.leave());
  server.addEventListener("error", () => connection.leave());
  return new Response(null, { status: 101, webSocket: client, headers });
}
