import {
  ApiError,
  internalError,
  invalidRequest,
  responseNotFound,
  tooManyInProgress,
} from "@responses-edge/responses-api/errors";
import { responseId, type TurnAddress } from "@responses-edge/responses-api/ids";
import { processState } from "../store/objects/process-state.ts";
import { homeUrl } from "../store/objects/rpc.ts";
import type { Caller } from "./transport.ts";

/**
 * The events of a run, for one client. They outlive the home's instance that writes them: if a process hands the home over,
 * or dies, the rest is asked for, from the last event on that the client was sent.
 */

/** How often the rest is asked for without a new event in between, and the time between two questions. Milliseconds. */
const MAX_QUESTIONS = 120;
const ASK_AGAIN_MS = 250;

const NEWLINE = 0x0a;
const COLON = 0x3a;

/** The end of a stream that is whole. */
const DONE = "data: [DONE]\n\n";

export interface Asked {
  /** The last sequence number that the client has; -1 for none. */
  after: number;
  /** True if deltas keep their `obfuscation`. */
  obfuscation: boolean;
  /** True if the last event has the response's times, whether its create has asked for them or not. */
  timing?: boolean;
}

let followed = 0;

/** The number of streams of runs that are being sent. */
export function followedRuns(): number {
  return followed;
}

/**
 * The events of a run, as the bytes of an SSE stream, which its home writes: first those after the sequence number `after` (-1:
 * all), then new ones, until the run ends or `caller.signal` is aborted. Throws the 404 of an unknown response, the 400 of
 * one that is no run, and the 429 of one with too many readers.
 */
export async function followResponse(
  caller: Caller,
  address: TurnAddress,
  asked: Asked,
): Promise<ReadableStream<Uint8Array>> {
  const events = await followIfLogged(caller, address, asked);
  if (events) return events;
  throw invalidRequest("stream", "Only responses created with 'background: true' can be streamed again.");
}

/** As `followResponse`; undefined for a response that is no run. */
export async function followIfLogged(
  caller: Caller,
  address: TurnAddress,
  asked: Asked,
): Promise<ReadableStream<Uint8Array> | undefined> {
  const body = await eventsAfter(caller, address, asked);
  if (!body) return undefined;
  const { readable, writable } = new IdentityTransformStream();
  caller.waitUntil(sendRest(caller, address, { ...asked, body, writable }));
  return readable;
}

/** The events that the home writes; undefined for a response that is no run. Throws as `followResponse`. */
async function eventsAfter({ homes, signal }: Caller, address: TurnAddress, asked: Asked) {
  const { after, obfuscation, timing = false } = asked;
  const url = homeUrl({ kind: "events", turn: address.turn, after, obfuscation, timing });
  const events = await homes.ask(address.home, null, (home) => home.fetch(url, { signal }));
  if (events?.ok && events.body) return events.body;
  await events?.body?.cancel();
  if (events?.ok) throw internalError();
  if (events?.status === 429) throw tooManyInProgress("This response has the maximum number of readers.");
  if (events?.status === 409) return undefined;
  throw responseNotFound(responseId(address));
}

interface Passing extends Asked {
  body: ReadableStream<Uint8Array>;
  writable: WritableStream<Uint8Array>;
}

/** Sends whole events to the client, with the rest from other instances of the home. Never rejects. */
async function sendRest(caller: Caller, address: TurnAddress, { body, writable, ...asked }: Passing): Promise<void> {
  const events = new WholeEvents(writable.getWriter());
  let rest: ReadableStream<Uint8Array> | undefined = body;
  let { after } = asked;
  followed += 1;
  try {
    for (let questions = 0; questions < MAX_QUESTIONS; questions += 1) {
      if (rest && (await events.take(rest))) return await events.end(true);
      const last = events.lastNumber() ?? after;
      if (last > after) questions = 0;
      else await scheduler.wait(ASK_AGAIN_MS);
      after = last;
      if (caller.signal.aborted || events.hasLeft || processState.isEnding) break;
      rest = await eventsAfter(caller, address, { ...asked, after }).catch((error: unknown) => {
        // The response was deleted, or has no events any more.
        if (error instanceof ApiError && (error.status === 404 || error.status === 400)) questions = MAX_QUESTIONS;
        return undefined;
      });
    }
    await events.end(false);
  } finally {
    followed -= 1;
  }
}

/** Writes the whole events of bodies that may break off in the middle of one. */
class WholeEvents {
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  /** The beginning of an event. */
  #begun: Uint8Array[] = [];
  /** The bytes with the last event that was written. */
  #last: Uint8Array | undefined;
  /** The client has left. */
  hasLeft = false;

  constructor(writer: WritableStreamDefaultWriter<Uint8Array>) {
    this.#writer = writer;
  }

  /** Writes a body. Tells whether the stream is whole now. */
  async take(body: ReadableStream<Uint8Array>): Promise<boolean> {
    const reader = body.getReader();
    this.#begun = [];
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        if (await this.#write(value)) continue;
        await reader.cancel();
        return false;
      }
    } catch {
      // The home's instance has ended.
    }
    return this.#last !== undefined && textOf(this.#last.subarray(-DONE.length)) === DONE;
  }

  /** Writes up to the end of the last event. False if the client has left. */
  async #write(bytes: Uint8Array): Promise<boolean> {
    const end = endOfEvents(bytes, this.#begun.at(-1)?.at(-1));
    if (end === 0) {
      this.#begun.push(bytes);
      return true;
    }
    const whole =
      this.#begun.length > 0 ? Buffer.concat([...this.#begun, bytes.subarray(0, end)]) : bytes.subarray(0, end);
    this.#begun = end < bytes.length ? [bytes.subarray(end)] : [];
    // Comments are no events.
    if (whole[0] !== COLON || /\n\n[^:]/.test(textOf(whole))) this.#last = whole;
    try {
      await this.#writer.write(whole);
      return true;
    } catch {
      this.hasLeft = true;
      return false;
    }
  }

  /** The sequence number of the last event that was written; undefined if there is none. */
  lastNumber(): number | undefined {
    const events = this.#last && textOf(this.#last).split("\n\n");
    const last = events?.findLast((event) => event.startsWith("event: "));
    const data = last?.slice(last.indexOf("\ndata: ") + "\ndata: ".length);
    return data === undefined ? undefined : (JSON.parse(data) as { sequence_number: number }).sequence_number;
  }

  /** Ends the stream, so that the client sees whether it `isWhole`. */
  async end(isWhole: boolean): Promise<void> {
    const ended = isWhole ? this.#writer.close() : this.#writer.abort("The stream was given up.");
    await ended.catch(() => {});
  }
}

/** Where the last whole event in these bytes ends; 0 if none does. `before`: the byte before them. */
function endOfEvents(bytes: Uint8Array, before: number | undefined): number {
  for (let at = bytes.lastIndexOf(NEWLINE); at >= 0; at = bytes.lastIndexOf(NEWLINE, at - 1)) {
    if ((at > 0 ? bytes[at - 1] : before) === NEWLINE) return at + 1;
    if (at === 0) break;
  }
  return 0;
}

const decoder = new TextDecoder();

function textOf(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}
