import { ApiFault, call, callJson, tellKeyRefused } from "./api.ts";
import { type Arrival, arrival, arrivals, CLOSED, messagesOf, openSocket } from "./arrivals.ts";

/**
 * The ways to request a response. Each gives its events.
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
  tell: Tell,
): AsyncGenerator<Arrival> {
  switch (transport) {
    case "background":
      return followed({ last: -1 }, signal, tell, { ...body, background: true, stream: true });
    case "stream":
      return stream({ ...body, stream: true }, signal);
    case "socket":
      return sendOverSocket(body, signal);
    case "whole":
      return sendWhole(body, signal);
  }
}

async function* stream(body: unknown, signal: AbortSignal): AsyncGenerator<Arrival> {
  let hasEnded = false;
  for await (const each of arrivals("/v1/responses", { body, signal })) {
    hasEnded ||= isTerminal(each);
    yield each;
  }
  if (!hasEnded) throw new ApiFault("The stream broke off before the response had ended.");
}

async function* sendWhole(body: unknown, signal: AbortSignal): AsyncGenerator<Arrival> {
  const response = await callJson("/v1/responses", { body, signal });
  const type = ["failed", "cancelled"].includes(response.status) ? "response.failed" : `response.${response.status}`;
  yield arrival(JSON.stringify({ type, response }));
}

/**
 * Follows a background response until it ends: also over streams that break off.
 * @param last the number of the event after which to begin; without it from the beginning
 */
export function follow(id: string, signal: AbortSignal, last = -1, tell: Tell = () => {}): AsyncGenerator<Arrival> {
  return followed({ id, last }, signal, tell);
}

/**
 * Each event of a background response once.
 * @param place the response, and the last event that came of it
 * @param body creates the response, where there is none yet
 */
async function* followed(place: { id?: string; last: number }, signal: AbortSignal, tell: Tell, body?: unknown) {
  let hasEnded = false;
  for (let attempts = 0; !hasEnded; ) {
    if (attempts > 0) {
      tell({ attempts });
      await pause(Math.min(LAST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (attempts - 1)), signal);
    }
    const { id, last } = place;
    const opened = attempts === 0 ? undefined : () => tell({ resumedAfter: last });
    const events =
      id === undefined ? arrivals("/v1/responses", { body, signal }) : arrivals(logOf(id, last), { signal }, opened);
    try {
      for await (const each of events) {
        const { response, sequence_number: number } = each.event;
        if (number <= place.last) continue;
        place.last = number ?? place.last;
        place.id ??= response?.id;
        hasEnded ||= isTerminal(each);
        yield each;
      }
    } catch (error) {
      if (signal.aborted || place.id === undefined || isFinal(error)) throw error;
    }
    if (place.id === undefined) throw new ApiFault("The stream broke off before the response had begun.");
    attempts = place.last > last ? 1 : attempts + 1;
    if (attempts >= MAX_ATTEMPTS)
      throw new ApiFault("The page cannot follow the response. It may still run: open it later.");
  }
}

/** @param last the number of the event before the first one */
function logOf(id: string, last: number) {
  const after = last >= 0 ? `&starting_after=${last}` : "";
  return `/v1/responses/${encodeURIComponent(id)}?stream=true&include_obfuscation=false&include[]=timing${after}`;
}

/** Tells whether asking again would not help. */
function isFinal(error: unknown) {
  return error instanceof ApiFault && error.status >= 400 && error.status < 500 && error.status !== 429;
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

async function* sendOverSocket(body: Record<string, unknown>, signal: AbortSignal): AsyncGenerator<Arrival> {
  const socket = connection?.readyState === WebSocket.OPEN ? connection : openSocket();
  connection = socket;
  const listening = new AbortController();
  signal.addEventListener("abort", () => socket.close(), { signal: listening.signal });
  try {
    if (socket.readyState === WebSocket.CONNECTING)
      await new Promise((resolve) => {
        for (const type of ["open", "close"]) socket.addEventListener(type, resolve, { once: true });
      });
    signal.throwIfAborted();
    if (socket.readyState !== WebSocket.OPEN) {
      // A refused upgrade has no reason for pages: HTTP says it.
      await call("/v1/models", { signal });
      throw new ApiFault(CLOSED);
    }
    socket.send(JSON.stringify({ type: "response.create", ...body }));
    for await (const each of messagesOf(socket, listening.signal)) {
      throwRefusal(each);
      yield each;
      if (isTerminal(each)) return;
    }
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    listening.abort();
  }
}

/** Throws the fault of an error frame. */
function throwRefusal({ event: { type, status = 0, error = {} } }: Arrival) {
  if (type !== "error") return;
  const fault = new ApiFault(String(error.message), { status, code: error.code, param: error.param });
  if (status === 401) tellKeyRefused(fault.message);
  throw fault;
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
