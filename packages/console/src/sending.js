import { ApiFault, call, callJson, tellKeyRefused } from "./api.js";
import { arrival, eventBatches, openSocket } from "./event-batches.js";

/**
 * The ways to request a response. Each gives batches of its events.
 *
 * - `background`: the response goes on without this page. The page follows it, also after a reload.
 * - `stream`: the answer's own stream. The response stops when the page is closed.
 * - `socket`: over a WebSocket. Like `stream`, but a response with `store: false` can be continued.
 * - `whole`: one answer at the end, handled like the last event.
 * @typedef {"background" | "stream" | "socket" | "whole"} Transport
 */

/** The pause between two attempts to follow a background response after its stream broke. Milliseconds. */
const FIRST_PAUSE_MS = 500;
const LAST_PAUSE_MS = 5_000;

/** The maximum number of attempts without a new event. */
const MAX_ATTEMPTS = 60;

const TERMINAL = ["response.completed", "response.failed", "response.incomplete"];

/** @typedef {import("./event-batches.js").Arrival} Arrival */

/** @param {Arrival} arrival */
function isTerminal({ event }) {
  return TERMINAL.includes(event.type);
}

/**
 * Sends a request.
 * @param {Record<string, unknown>} body without the transport's fields
 * @param {Transport} transport
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<Arrival[]>}
 */
export function send(body, transport, signal) {
  switch (transport) {
    case "background":
      return sendBackground({ ...body, background: true, stream: true }, signal);
    case "stream":
      return stream({ ...body, stream: true }, signal);
    case "socket":
      return sendOverSocket(body, signal);
    case "whole":
      return sendWhole(body, signal);
  }
}

/** @param {unknown} body @param {AbortSignal} signal @returns {AsyncGenerator<Arrival[]>} */
async function* stream(body, signal) {
  let hasEnded = false;
  for await (const batch of eventBatches("/v1/responses", { body, signal })) {
    hasEnded ||= batch.some(isTerminal);
    yield batch;
  }
  if (!hasEnded) throw new ApiFault("The stream broke off before the response had ended.");
}

/** @param {unknown} body @param {AbortSignal} signal @returns {AsyncGenerator<Arrival[]>} */
async function* sendWhole(body, signal) {
  const response = await callJson("/v1/responses", { body, signal });
  const type = ["failed", "cancelled"].includes(response.status) ? "response.failed" : `response.${response.status}`;
  yield [arrival(JSON.stringify({ type, response }))];
}

/** @param {unknown} body @param {AbortSignal} signal @returns {AsyncGenerator<Arrival[]>} */
async function* sendBackground(body, signal) {
  /** @type {{ id: string | undefined, last: number, hasEnded: boolean }} */
  const place = { id: undefined, last: -1, hasEnded: false };
  try {
    yield* newEvents(eventBatches("/v1/responses", { body, signal }), place);
  } catch (error) {
    if (signal.aborted || place.id === undefined || isFinal(error)) throw error;
  }
  if (place.hasEnded) return;
  if (place.id === undefined) throw new ApiFault("The stream broke off before the response had begun.");
  yield* followFrom(place, place.id, signal);
}

/**
 * Follows a background response until it ends: also over streams that break off.
 * @param {string} id
 * @param {AbortSignal} signal
 * @param {number} [last] the number of the event after which to begin; without it from the beginning
 * @returns {AsyncGenerator<Arrival[]>}
 */
export function follow(id, signal, last = -1) {
  return followFrom({ id, last, hasEnded: false }, id, signal);
}

/**
 * @param {{ id: string | undefined, last: number, hasEnded: boolean }} place
 * @param {string} id
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<Arrival[]>}
 */
async function* followFrom(place, id, signal) {
  let attempts = 0;
  while (!place.hasEnded) {
    const before = place.last;
    const after = place.last >= 0 ? `&starting_after=${place.last}` : "";
    try {
      const path = `/v1/responses/${encodeURIComponent(id)}?stream=true&include_obfuscation=false${after}`;
      yield* newEvents(eventBatches(path, { signal }), place);
    } catch (error) {
      if (signal.aborted || isFinal(error)) throw error;
    }
    if (place.hasEnded) return;
    attempts = place.last > before ? 0 : attempts + 1;
    if (attempts >= MAX_ATTEMPTS)
      throw new ApiFault("The page cannot follow the response. It may still run: open it later.");
    await pause(Math.min(LAST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempts), signal);
  }
}

/** Tells whether asking again would not help. @param {unknown} error */
function isFinal(error) {
  return error instanceof ApiFault && error.status >= 400 && error.status < 500 && error.status !== 429;
}

/**
 * Those events that come after the last one.
 * @param {AsyncGenerator<Arrival[]>} batches
 * @param {{ id: string | undefined, last: number, hasEnded: boolean }} place is moved on
 * @returns {AsyncGenerator<Arrival[]>}
 */
async function* newEvents(batches, place) {
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

/** @param {number} milliseconds @param {AbortSignal} signal @returns {Promise<void>} */
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/** The page's connection: it keeps what was made with `store: false`, so one serves all requests. @type {WebSocket | undefined} */
let connection;

/** @param {Record<string, unknown>} body @param {AbortSignal} signal @returns {AsyncGenerator<Arrival[]>} */
async function* sendOverSocket(body, signal) {
  const socket = connection?.readyState === WebSocket.OPEN ? connection : openSocket();
  connection = socket;
  /** @type {Arrival[]} */
  let batch = [];
  /** @type {ApiFault | undefined} */
  let fault;
  let wake = () => {};
  const stop = () => socket.close();
  /** @param {MessageEvent} message */
  const receive = ({ data }) => {
    batch.push(arrival(String(data)));
    wake();
  };
  /** @param {CloseEvent} event */
  const closed = ({ code, reason }) => {
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

/** The error frame among these. @param {Arrival[]} batch @returns {ApiFault | undefined} */
function refusalIn(batch) {
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

/**
 * Ends a background response. Gives it as it then stands.
 * @param {string} id
 */
export function cancel(id) {
  return callJson(`/v1/responses/${encodeURIComponent(id)}/cancel`, { method: "POST" });
}
