import { LongWork } from "@responses-edge/bounded-io/long-work";
import { Connection, type ConnectionOptions } from "./connection.ts";
import type { Wire } from "./outbox.ts";

/** WebSockets of workerd. The Worker itself is the server: no Durable Object is awake for them. */

/** True if a request asks for a WebSocket. */
export function wantsSocket({ headers }: Request): boolean {
  return headers.get("upgrade")?.toLowerCase() === "websocket";
}

/** The subprotocol of browsers. A browser closes a connection if the answer names none of the subprotocols that it has offered. */
const SUBPROTOCOL = "responses";

/** OpenAI's way to send a key where no header can be set, in clients of its Realtime API. */
const KEY_SUBPROTOCOL = "openai-insecure-api-key.";

/** Longer headers are not searched for a key. */
const MAX_OFFER_LENGTH = 16 * 1024;

/** The subprotocols that a client offers. */
function offered({ headers }: Request): string[] {
  const offer = headers.get("sec-websocket-protocol") ?? "";
  return offer.length > MAX_OFFER_LENGTH ? [] : offer.split(",").map((name) => name.trim());
}

/** The key among the subprotocols of an upgrade. */
export function subprotocolKey(request: Request): string | undefined {
  return offered(request)
    .find((name) => name.startsWith(KEY_SUBPROTOCOL))
    ?.slice(KEY_SUBPROTOCOL.length);
}

/** The header of an answer that chooses among the offered subprotocols. It never repeats the one with the key. */
export function chosenSubprotocol(request: Request): Record<string, string> {
  return offered(request).includes(SUBPROTOCOL) ? { "sec-websocket-protocol": SUBPROTOCOL } : {};
}

/** The microseconds that opening a connection takes, about. */
const UNITS_PER_CONNECTION = 1_000;

/** The time in which a client may answer a close frame. workerd itself waits for ever. Milliseconds. */
const CLOSE_TIMEOUT_MS = 1_500;

/** The reason of a cut. The log of `serve` leaves it out (`cli/serve/log-lines.ts`). */
const NOT_CLOSED = "The client did not close its WebSocket.";

/**
 * The answer that opens a connection, with these headers. `cut` ends the request of the upgrade, and with it the
 * socket, without the client. Rejects as `Connection` throws.
 */
export async function openSocket(
  options: ConnectionOptions,
  headers: Record<string, string>,
  cut: (reason: string) => void,
): Promise<Response> {
  await new LongWork(options.tenant).spend(UNITS_PER_CONNECTION);
  const { 0: client, 1: server } = new WebSocketPair();
  const wire: Wire = {
    send: (text) => server.send(text),
    close(code, reason) {
      server.close(code, reason);
      const timer = setTimeout(() => cut(NOT_CLOSED), CLOSE_TIMEOUT_MS);
      server.addEventListener("close", () => clearTimeout(timer));
    },
    get bufferedAmount() {
      return server.bufferedAmount;
    },
  };
  const connection = new Connection(wire, options);
  server.accept();
  server.addEventListener("message", ({ data }) => connection.receive(data));
  // A lost connection is closed with 1006, at once. A frame that the runtime refuses (1009) is an error.
  server.addEventListener("close", () => connection.leave());
  server.addEventListener("error", () => connection.leave());
  return new Response(null, { status: 101, webSocket: client, headers });
}
