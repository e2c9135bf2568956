import { randomBytes } from "node:crypto";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { OutputItem } from "@responses-edge/responses-api/items/registry";
import type { JsonObject } from "@responses-edge/responses-api/json";
import { requiredInput, steerMessages } from "@responses-edge/responses-api/steering";
import type { Steering } from "@responses-edge/turn/steering";
import type { TurnResult } from "@responses-edge/turn/turn";
import { type SteerFailure, steerFailedFrame } from "./frames.ts";

/**
 * Steering of a connection's responses: a user's words that come while a response is under way end it, and another one that continues it
 * answers them (openai 7.59 `ResponseSteerEvent`).
 */

/** Submissions that wait for one response to end. */
const MAX_STEERS = 16;

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

interface SteeredResponse {
  id: string;
  lane: string | undefined;
  /** Undefined: it may not be steered. */
  steering: Steering | undefined;
  steers: Steer[];
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

  /** A response begins, which may be steered by `steering`. */
  begin(id: string, lane: string | undefined, steering: Steering | undefined): void {
    this.#running.set(id, { id, lane, steering, steers: [] });
  }

  /** Takes a `response.steer`: the response is ended, unless the words are given back with the reason. */
  take(event: JsonObject, previous: string, length: number): void {
    const { input } = event;
    const response = this.#running.get(previous);
    try {
      if (!response) throw this.#notRunning(previous);
      const { steering, steers } = response;
      const messages = readMessages(event);
      if (!steering) throw notSteered();
      if (steers.length >= MAX_STEERS) throw tooManySteers();
      const steer = { id: `steer_${randomBytes(16).toString("hex")}`, input, messages, length };
      const accepted = { steer: { id: steer.id, previous_response_id: previous } };
      if (!steering.say({ type: "response.steer.accepted", ...accepted })) throw notRunningYet();
      steers.push(steer);
      this.length += length;
      steering.steer();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const lane = response ? response.lane : this.#ended.get(previous);
      const failure = { previous, input, code: error.code, message: error.message };
      if (!response?.steering?.say(failedEvent(failure))) this.#send(steerFailedFrame(failure, lane));
    }
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
    if (response.steers.length === 0) return undefined;
    const status = result?.outcome.status;
    if (!result || status === "failed" || status === "cancelled") {
      this.fail(response, "response_not_active", "The response has ended without an answer that can continue.");
      return undefined;
    }
    const required = requiredInput(JSON.parse(result.closed.output) as OutputItem[]);
    if (required.length === 0) return response;
    for (const { id: steer } of response.steers) {
      response.steering?.say({
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
      words.steering?.say(failedEvent({ id, previous: words.id, input, code, message }));
    }
  }

  #notRunning(id: string): ApiError {
    if (this.#ended.has(id))
      return refusal(
        "response_already_completed",
        `Response '${id}' has ended. Continue it with 'response.create' and 'previous_response_id'.`,
      );
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

function readMessages(event: JsonObject): JsonObject[] {
  try {
    return steerMessages(event);
  } catch (error) {
    throw error instanceof ApiError ? refusal("invalid_input", error.message) : error;
  }
}

function failedEvent(failure: SteerFailure) {
  return JSON.parse(steerFailedFrame(failure, undefined)) as { type: string };
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

function tooManySteers(): ApiError {
  return refusal("too_many_pending_steers", `${MAX_STEERS} submissions wait for this response to end.`);
}
