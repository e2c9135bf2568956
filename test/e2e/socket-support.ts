import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { json } from "node:stream/consumers";
import { WebSocket } from "ws";
import { checkEventStream } from "../conformance/event-stream.ts";
import { violationsIn } from "../conformance/violations.ts";
import type { ErrorFields, StreamEvent } from "./expectations.ts";

/** A client of WebSocket mode that records every frame, and checks all responses against the API's own types. */

const TERMINAL = new Set(["response.completed", "response.failed", "response.incomplete", "error"]);

/** The fields of a server's frame that these tests read. */
export type SocketEvent = Omit<StreamEvent, "error"> & {
  stream_id?: string;
  status?: number;
  error?: ErrorFields & { headers?: Record<string, string> };
  steer?: { previous_response_id: string; input: unknown };
};

/** The frames of one create. The last one is terminal. */
export interface SocketTurn {
  /** The frames' texts. */
  frames: string[];
  events: SocketEvent[];
  types: string[];
  last: SocketEvent;
  /** The response of the first event. */
  id: string;
  /** All text deltas. */
  text: string;
}

export class SocketClient {
  readonly socket: WebSocket;
  /** All frames that do not belong to an ended response. */
  readonly #open = new Map<string | undefined, string[]>();
  readonly #ended = new Map<string | undefined, SocketTurn[]>();
  readonly #waiting = new Set<() => void>();
  /** The close code and reason, after the connection has ended. */
  closed: { code: number; reason: string } | undefined;

  private constructor(socket: WebSocket) {
    this.socket = socket;
    socket.on("message", (data) => this.#receive(String(data)));
    socket.on("error", () => {});
    socket.on("close", (code, reason) => {
      this.closed = { code, reason: reason.toString() };
      this.#wake();
    });
  }

  /** `protocols`: the offered subprotocols. */
  static async open(
    { url }: { url: string },
    { protocols = [], ...options }: WebSocket.ClientOptions & { protocols?: string[] } = {},
  ): Promise<SocketClient> {
    const { href } = new URL("/v1/responses", url.replace("http", "ws"));
    const client = new SocketClient(new WebSocket(href, protocols, { perMessageDeflate: false, ...options }));
    await once(client.socket, "open");
    return client;
  }

  /** Works with a connection, and closes it. */
  static async within<T>(gateway: { url: string }, work: (socket: SocketClient) => Promise<T>): Promise<T> {
    const socket = await SocketClient.open(gateway);
    try {
      return await work(socket);
    } finally {
      socket.terminate();
    }
  }

  send(event: object): void {
    this.socket.send(JSON.stringify(event));
  }

  /** Sends a create, in the lane of its `stream_id`. */
  create(fields: object): void {
    this.send({ type: "response.create", model: "simulator", store: false, ...fields });
  }

  /** Sends a create, and waits for its end. */
  turn(fields: { stream_id?: string; [field: string]: unknown }): Promise<SocketTurn> {
    this.create(fields);
    return this.ended(fields.stream_id);
  }

  /** The lane's next response or error. Rejects when the connection closes before. */
  async ended(lane?: string): Promise<SocketTurn> {
    return this.#until(() => this.#ended.get(lane)?.shift());
  }

  /** The frames of a lane's current response, as soon as one of them fits. */
  async reached(fits: (event: SocketEvent) => boolean, lane?: string): Promise<SocketEvent[]> {
    return this.#until(() => {
      const events = (this.#open.get(lane) ?? []).map((frame) => JSON.parse(frame) as SocketEvent);
      return events.some(fits) ? events : undefined;
    });
  }

  async closing(): Promise<{ code: number; reason: string }> {
    while (!this.closed) await this.#event();
    return this.closed;
  }

  /** Ends the connection without a close frame, as when a process dies. */
  terminate(): void {
    this.socket.terminate();
  }

  async close(): Promise<void> {
    this.socket.close();
    await this.closing();
  }

  async #until<T>(take: () => T | undefined): Promise<T> {
    for (;;) {
      const value = take();
      if (value !== undefined) return value;
      if (this.closed) throw new Error(`The connection was closed: ${JSON.stringify(this.closed)}`);
      await this.#event();
    }
  }

  #event(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.add(resolve);
    });
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  #receive(frame: string): void {
    const event = JSON.parse(frame) as SocketEvent;
    const lane = event.stream_id;
    const frames = [...(this.#open.get(lane) ?? []), frame];
    this.#open.set(lane, frames);
    if (TERMINAL.has(event.type)) {
      this.#open.delete(lane);
      this.#ended.set(lane, [...(this.#ended.get(lane) ?? []), turnOf(frames)]);
    }
    this.#wake();
  }
}

/** The HTTP answer that refuses an upgrade. Rejects when the upgrade succeeds. */
export async function refusedUpgrade(
  { url }: { url: string },
  options: WebSocket.ClientOptions,
): Promise<{ status: number | undefined; headers: IncomingMessage["headers"]; body: unknown }> {
  const socket = new WebSocket(new URL("/v1/responses", url.replace("http", "ws")), options);
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    socket.on("unexpected-response", (_, refusal) => resolve(refusal));
    socket.on("open", () => reject(new Error("The upgrade was not refused.")));
  });
  return { status: answer.statusCode, headers: answer.headers, body: await json(answer) };
}

function turnOf(frames: string[]): SocketTurn {
  const events = frames.map((frame) => JSON.parse(frame) as SocketEvent);
  const last = events.at(-1) as SocketEvent;
  return {
    frames,
    events,
    types: events.map(({ type }) => type),
    last,
    id: events[0]?.response?.id ?? "",
    text: events.map((event) => (event.type === "response.output_text.delta" ? event.delta : "")).join(""),
  };
}

/** The violations of the API's own types and rules in a response's events. */
export function turnViolations({ events }: SocketTurn): readonly string[] {
  const stream = { events: events.map((data) => ({ name: data.type, data })), comments: [], done: true };
  try {
    checkEventStream(stream, { socket: true });
    return [];
  } catch (error) {
    return violationsIn(error);
  }
}
