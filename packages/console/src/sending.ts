import { ApiFault, call, callJson, tellKeyRefused } from "./api.ts";
import { type Arrival, arrival, eventBatches, openSocket } from "./event-batches.ts";

/**
 * The ways to request a response. Each gives batches of its events.
 *
 * - `background`: the response goes on without this page. The page follows it, also after a reload.
 * - `stream`: the answer's own stream. The response stops when the page is closed.
 * - `socket`: over a WebSocket. Like `stream`, but a response with `store: false` can be continued.
 * - `whole`: one answer at the end, handled like the last event.
 */
export type Transport = "background" | "stream" | "socket" | "whole";

/** The pause between two attempts to follow a background response after its stream broke. Milliseconds. */
const FIRST_PAUSE_MS = 500;
const LAST_PAUSE_MS = 2_000;

/** The maximum number of attempts without a new event. */
const MAX_ATTEMPTS = 150;

const TERMINAL = ["response.completed", "response.failed", "response.incomplete"];

function isTerminal({ event }: Arrival) {
  return TERMINAL.includes(event.type);
}

/** How the connection to a background response is: lost, with the number of attempts since, or there again after an event. */
export type Connection = { attempts: number } | { resumedAfter: number };

export type Tell = (connection: Connection) => void;

/**
 * Sends a request.
 * @param body without the transport's fields
 * @param tell Called when the connection to a background response is lost, and when it is there again.
 */
export function send(
  body: Record<string, unknown>,
  transport: Transport,
  signal: AbortSignal,
  tell: Tell = () => {},
): AsyncGenerator<Arrival[]> {
  switch (transport) {
    case "background":
      return sendBackground({ ...body, background: true, stream: true }, signal, tell);
    case "stream":
      return stream({ ...body, stream: true }, signal);
    case "socket":
      return sendOverSocket(body, signal);
    case "whole":
      return sendWhole(body, signal);
  }
}

async function* stream(body: unknown, signal: AbortSignal): AsyncGenerator<Arrival[]> {
  let hasEnded = false;
  for await (const batch of eventBatches("/v1/responses", { body, signal })) {
    hasEnded ||= batch.some(isTerminal);
    yield batch;
  }
  if (!hasEnded) throw new ApiFault("The stream broke off before the response had ended.");
}

async function* sendWhole(body: unknown, signal: AbortSignal): AsyncGenerator<Arrival[]> {
  const response = await callJson("/v1/responses", { body, signal });
  const type = ["failed", "cancelled"].includes(response.status) ? "response.failed" : `response.${response.status}`;
  yield [arrival(JSON.stringify({ type, response }))];
}

/** The response that is followed, and the last event that came of it. */
interface Place {
  id: string | undefined;
  last: number;
  hasEnded: boolean;
}

async function* sendBackground(body: unknown, signal: AbortSignal, tell: Tell): AsyncGenerator<Arrival[]> {
  const place: Place = { id: undefined, last: -1, hasEnded: false };
  try {
    yield* newEvents(eventBatches("/v1/responses", { body, signal }), place);
  } catch (error) {
    if (signal.aborted || place.id === undefined || isFinal(error)) throw error;
  }
  if (place.hasEnded) return;
  if (place.id === undefined) throw new ApiFault("The stream broke off before the response had begun.");
  yield* followFrom(place, place.id, signal, tell, true);
}

/**
 * Follows a background response until it ends: also over streams that break off.
 * @param last the number of the event after which to begin; without it from the beginning
 */
export function follow(id: string, signal: AbortSignal, last = -1, tell: Tell = () => {}): AsyncGenerator<Arrival[]> {
  return followFrom({ id, last, hasEnded: false }, id, signal, tell);
}

/** @param isLost whether a connection was lost before */
async function* followFrom(
  place: Place,
  id: string,
  signal: AbortSignal,
  tell: Tell,
  isLost = false,
): AsyncGenerator<Arrival[]> {
  for (let attempts = isLost ? 1 : 0; !place.hasEnded; ) {
    if (attempts > 0) {
      tell({ attempts });
      await pause(Math.min(LAST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (attempts - 1)), signal);
    }
    const { last } = place;
    const after = last >= 0 ? `&starting_after=${last}` : "";
    const opened = attempts === 0 ? undefined : () => tell({ resumedAfter: last });
    try {
      const path = `/v1/responses/${encodeURIComponent(id)}?stream=true&include_obfuscation=false&include[]=timing${after}`;
      yield* newEvents(eventBatches(path, { signal }, opened), place);
    } catch (error) {
      if (signal.aborted || isFinal(error)) throw error;
    }
    attempts = place.last > last ? 1 : attempts + 1;
    if (attempts >= MAX_ATTEMPTS)
      throw new ApiFault("The page cannot follow the response. It may still run: open it later.");
  }
}

/** Tells whether asking again would not help. */
function isFinal(error: unknown) {
  return error instanceof ApiFault && error.status >= 400 && error.status < 500 && error.status !== 429;
}

/**
 * Those events that come after the last one.
 * @param place is moved on
 */
async function* newEvents(batches: AsyncGenerator<Arrival[]>, place: Place): AsyncGenerator<Arrival[]> {
  for await (const batch of batches) {
    const fresh = batch.filter(({ event }) => !(event.sequence_number <= place.last));
    for (const each of fresh) {
      place.last = each.event.sequence_number ?? place.last;
      place.id ??= each.event.response?.id;
      place.hasEnded ||= isTerminal(each);
    }
    if (fresh.length > 0) yield fresh;
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/** The page's connection: it keeps what was made with `store: false`, so one serves all requests. */
let connection: WebSocket | undefined;

async function* sendOverSocket(body: Record<string, unknown>, signal: AbortSignal): AsyncGenerator<Arrival[]> {
  const socket = connection?.readyState === WebSocket.OPEN ? connection : openSocket();
  connection = socket;
  let batch: Arrival[] = [];
  let fault: ApiFault | undefined;
  let wake = () => {};
  const stop = () => socket.close();
  const receive = ({ data }: MessageEvent) => {
    batch.push(arrival(String(data)));
    wake();
  };
  const closed = ({ code, reason }: CloseEvent) => {
    fault ??= new ApiFault(
      code === 1006
        ? "The WebSocket was closed. Is the server running, and does it accept this key?"
        : `The server has closed the WebSocket: ${reason || code}`,
    );
    wake();
  };
  socket.addEventListener("message", receive);
  socket.addEventListener("close", closed);
  signal.addEventListener("abort", stop);
  try {
    if (socket.readyState === WebSocket.CONNECTING) {
      await new Promise((resolve) => {
        socket.addEventListener("open", resolve, { once: true });
        socket.addEventListener("close", resolve, { once: true });
      });
    }
    signal.throwIfAborted();
    // A refused upgrade has no reason for pages: HTTP says it.
    if (socket.readyState !== WebSocket.OPEN) await call("/v1/models", { signal });
    else socket.send(JSON.stringify({ type: "response.create", ...body }));
    for (;;) {
      if (batch.length > 0) {
        const now = batch;
        batch = [];
        const refused = refusalIn(now);
        if (refused) throw refused;
        yield now;
        if (now.some(isTerminal)) return;
        continue;
      }
      signal.throwIfAborted();
      if (fault) throw fault;
      await new Promise((resolve) => {
        wake = () => resolve(undefined);
      });
    }
  } finally {
    socket.removeEventListener("message", receive);
    socket.removeEventListener("close", closed);
    signal.removeEventListener("abort", stop);
  }
}

/** The error frame among these. */
function refusalIn(batch: Arrival[]): ApiFault | undefined {
  const frame = batch.find(({ event }) => event.type === "error");
  if (!frame) return undefined;
  const { status = 0, error = {} } = frame.event;
  const fault = new ApiFault(String(error.message), { status, code: error.code, param: error.param });
  if (status === 401) tellKeyRefused(fault.message);
  return fault;
}

/** Forgets the connection: its key is another's, or none any more. */
export function closeConnection() {
  connection?.close();
  connection = undefined;
}

/** Ends a background response. Gives it as it then stands. */
export function cancel(id: string) {
  return callJson(`/v1/responses/${encodeURIComponent(id)}/cancel`, { method: "POST" });
}
