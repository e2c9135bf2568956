import { randomBytes } from "node:crypto";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { OutputItem } from "@responses-edge/responses-api/items/registry";
import type { JsonObject } from "@responses-edge/responses-api/json";
import { injectedItems, requiredInput, steerMessages } from "@responses-edge/responses-api/steering";
import type { Steering } from "@responses-edge/turn/steering";
import type { TurnResult } from "@responses-edge/turn/turn";
import { failedEvent, failedFrame, type SubmissionFailure } from "./frames.ts";

/**
 * Submissions to a connection's responses that are under way. A user's words end a response, and another one that
 * continues it answers them (openai 7.59 `ResponseSteerEvent`). Outputs of its client's calls become part of it
 * (`BetaResponseInjectEvent`).
 */

/** Submissions of each kind that wait in one response. */
const MAX_WAITING = 16;

/** Responses that are remembered to have ended here. */
const MAX_ENDED = 256;

interface Steer {
  id: string;
  /** As it was sent. */
  input: unknown;
  messages: JsonObject[];
  /** Its frame, in UTF-16 units. */
  length: number;
}

/** Outputs that wait to become part of a response: as they were sent, and the length of their frame. */
type Inject = Pick<Steer, "input" | "length">;

interface SteeredResponse {
  id: string;
  lane: string | undefined;
  steering: Steering;
  /** It may be ended by a message. */
  maySteer: boolean;
  steers: Steer[];
  injects: Set<Inject>;
}

/** The messages that steered a response which has ended: the next response in its lane answers them. */
export type QueuedWords = Readonly<SteeredResponse>;

export class ConnectionSteering {
  readonly #send: (frame: string) => void;
  /** Those that are under way, by id. */
  readonly #running = new Map<string, SteeredResponse>();
  /** The lanes of those that have ended, by id; oldest first. */
  readonly #ended = new Map<string, string | undefined>();
  /** Words that wait, by lane, until the client has answered the calls of the response that they are for. */
  readonly #waiting = new Map<string | undefined, QueuedWords>();
  /** All words that no response has answered yet, in UTF-16 units. */
  length = 0;

  constructor(send: (frame: string) => void) {
    this.#send = send;
  }

  /** A response begins, which `steering` reaches. */
  begin(id: string, response: Pick<SteeredResponse, "lane" | "steering" | "maySteer">): void {
    this.#running.set(id, { id, ...response, steers: [], injects: new Set() });
  }

  /**
   * Takes a submission to the response `id`. A `response.steer` ends it; the outputs of a `response.inject` become part
   * of it. The input is given back with the reason if that cannot be.
   */
  take(kind: SubmissionFailure["kind"], event: JsonObject, id: string, length: number): void {
    const { input } = event;
    const response = this.#running.get(id);
    try {
      if (!response) throw this.#notRunning(id);
      if (kind === "steer") this.#steer(response, event, length);
      else this.#inject(response, event, length);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const failure = { kind, response: id, input, code: error.code, message: error.message };
      if (response?.steering.say(failedEvent(failure))) return;
      this.#send(failedFrame(failure, response ? response.lane : this.#ended.get(id)));
    }
  }

  #steer(response: SteeredResponse, event: JsonObject, length: number): void {
    const { id: previous, steering, maySteer, steers } = response;
    const messages = valid(() => steerMessages(event));
    if (!maySteer) throw notSteered();
    if (steers.length >= MAX_WAITING) throw tooMany("too_many_pending_steers");
    const steer = { id: `steer_${randomBytes(16).toString("hex")}`, input: event.input, messages, length };
    const accepted = { steer: { id: steer.id, previous_response_id: previous } };
    if (!steering.say({ type: "response.steer.accepted", ...accepted })) throw notRunningYet();
    steers.push(steer);
    this.length += length;
    steering.steer();
  }

  #inject({ id, steering, injects }: SteeredResponse, event: JsonObject, length: number): void {
    const items = valid(() => injectedItems(event));
    if (injects.size >= MAX_WAITING) throw tooMany("too_many_pending_injects");
    const inject = { input: event.input, length };
    const taken = () => {
      this.#forget(injects, inject);
      steering.say({ type: "response.inject.created", response_id: id });
    };
    // It may be taken at once.
    injects.add(inject);
    this.length += length;
    let isTaken = false;
    try {
      isTaken = valid(() => steering.inject({ items, taken }));
      if (!isTaken) throw notRunningYet();
    } finally {
      if (!isTaken) this.#forget(injects, inject);
    }
  }

  #forget(injects: Set<Inject>, inject: Inject): void {
    if (injects.delete(inject)) this.length -= inject.length;
  }

  /**
   * Notes the end of a response. Gives the messages that the next response has to answer at once. There are none if
   * the client must answer calls first, or if no response can follow: the client then gets `response.steer.failed`.
   * Without a `result` the response never began.
   */
  end(id: string, result?: TurnResult): QueuedWords | undefined {
    const response = this.#running.get(id);
    if (!response) return undefined;
    this.#running.delete(id);
    this.#noteLane(id, response.lane);
    for (const inject of response.injects) {
      this.#forget(response.injects, inject);
      const { code, message } = hasEnded(id);
      response.steering.say(failedEvent({ kind: "inject", response: id, input: inject.input, code, message }));
    }
    if (response.steers.length === 0) return undefined;
    const status = result?.outcome.status;
    if (!result || status === "failed" || status === "cancelled") {
      this.fail(response, "response_not_active", "The response has ended without an answer that can continue.");
      return undefined;
    }
    const required = requiredInput(JSON.parse(result.closed.output) as OutputItem[]);
    if (required.length === 0) return response;
    for (const { id: steer } of response.steers) {
      response.steering.say({
        type: "response.steer.pending",
        reason: "waiting_for_required_input",
        required_input: required,
        steer: { id: steer, previous_response_id: id },
      });
    }
    this.#waiting.set(response.lane, response);
    return undefined;
  }

  /** The words that wait for a create of a lane, which continues `previous`. Those that have waited for another one are given back. */
  waitingFor(lane: string | undefined, previous: unknown): QueuedWords | undefined {
    const words = this.#waiting.get(lane);
    this.#waiting.delete(lane);
    if (!words || words.id === previous) return words;
    this.fail(words, "response_not_active", "Another response has begun in its lane and does not continue it.");
    return undefined;
  }

  /** A response has begun that answers the words. */
  commit({ steers }: QueuedWords): void {
    for (const { length } of steers) this.length -= length;
  }

  /** Reports messages that no response answers as failed. */
  fail(words: QueuedWords, code: string, message: string): void {
    this.commit(words);
    for (const { id, input } of words.steers) {
      words.steering.say(failedEvent({ kind: "steer", id, response: words.id, input, code, message }));
    }
  }

  #notRunning(id: string): ApiError {
    if (this.#ended.has(id)) return hasEnded(id);
    return refusal(
      "response_not_found",
      `Response with id '${id.slice(0, 64)}' not found among those in progress on this connection.`,
    );
  }

  #noteLane(id: string, lane: string | undefined): void {
    this.#ended.set(id, lane);
    const oldest = this.#ended.size > MAX_ENDED ? this.#ended.keys().next().value : undefined;
    if (oldest !== undefined) this.#ended.delete(oldest);
  }
}

/** Runs a check of an input, whose errors become `invalid_input`. */
function valid<Value>(check: () => Value): Value {
  try {
    return check();
  } catch (error) {
    throw error instanceof ApiError ? refusal("invalid_input", error.message) : error;
  }
}

function hasEnded(id: string): ApiError {
  const message = `Response '${id}' has ended. Continue it with 'response.create' and 'previous_response_id'.`;
  return refusal("response_already_completed", message);
}

function refusal(code: string, message: string): ApiError {
  return new ApiError({ status: 400, message, code });
}

function notSteered(): ApiError {
  const message =
    "A response in a conversation, with 'context_management', or that is only prepared cannot be steered. Send the input with the next 'response.create'.";
  return refusal("steering_not_supported", message);
}

function notRunningYet(): ApiError {
  return refusal("response_not_active", "The response has not begun.");
}

function tooMany(code: string): ApiError {
  return refusal(code, `${MAX_WAITING} submissions wait in this response.`);
}
