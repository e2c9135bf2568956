import { checkRequestMedia } from "../assembly/media-policy.ts";
import { type CreateRequest, conversationOf, createRequest } from "../protocol/create-request.ts";
import { ApiError, previousResponseNotFound } from "../protocol/errors.ts";
import { withExtraFields } from "../protocol/extra-fields.ts";
import { newTurnAddress, parseResponseId, type TurnAddress } from "../protocol/ids.ts";
import type { InputItem } from "../protocol/items.ts";
import { parse } from "../protocol/validation.ts";
import { conversationAddress, homeOf } from "../store/client.ts";
import type { StoredResponse } from "../store/turn-store.ts";
import type { BatchSink } from "../turn/event-writer.ts";
import { toInputItems } from "../turn/history.ts";
import type { TurnResult } from "../turn/turn.ts";
import { tenantCacheSalt } from "./cache-salt.ts";
import type { Caller } from "./caller.ts";
import { checkVllmExtras } from "./vllm-extras.ts";

/** A response that is to be created, and what it comes to: the words that the ways of creating one share. */

/** A checked request, with all that is known before anybody is asked. */
export interface Creation {
  caller: Caller;
  request: CreateRequest;
  /** The request's own input, references not resolved. */
  input: InputItem[];
  /** The turn that the new one continues. */
  previous: TurnAddress | null;
  conversation: { id: string; address: TurnAddress } | undefined;
  /** The new turn's own address. */
  address: TurnAddress;
  cacheSalt: string;
  /** Unix milliseconds. */
  createdAt: number;
  /** Aborted, with the 499 that says so, when the client leaves. */
  abort: AbortController;
}

/** What a creation comes to. */
export type Created<Sink extends ClientSink> =
  /** The response: ended, or, for a background run, as it is now. */
  | { kind: "response"; response: StoredResponse }
  /** A foreground turn that runs beside its client, and whose events go to `sink`. `ended` never rejects. */
  | { kind: "events"; sink: Sink; ended: Promise<TurnResult> }
  /** A run in its home, followed from its first event: SSE, as `followResponse` gives it. */
  | { kind: "run"; events: ReadableStream<Uint8Array> };

/** Leads the events of a foreground turn to its client. */
export interface ClientSink extends BatchSink {
  /** Sends what is left, and that it is all. Never rejects. */
  end(): Promise<void>;
  /** Breaks off, so that a client that is still there does not take what it has for all. Never rejects. */
  abandon(): Promise<void>;
}

/**
 * Checks the body of a create. Throws the 400s of all that can be seen to be wrong without asking a home or the model
 * server, and the 404 of a conversation's id that this server cannot have made.
 */
export async function checkCreation(caller: Caller, body: unknown): Promise<Creation> {
  const { config, tenant, signal } = caller;
  const request = withExtraFields(parse(createRequest, body), body, config.vllmExtraFields);
  checkVllmExtras(request, config.vllmExtras);
  const id = conversationOf(request);
  const conversation = id === undefined ? undefined : { id, address: conversationAddress(id) };
  const input = toInputItems(request.input);
  await checkRequestMedia(input, "input", config, signal);
  const previous = previousAddress(request.previous_response_id);
  return {
    caller,
    request,
    input,
    previous,
    conversation,
    address: newTurnAddress(homeOf(input, previous, conversation?.address)),
    cacheSalt: tenantCacheSalt(tenant, request.cache_salt),
    createdAt: Date.now(),
    abort: abortedWith(signal),
  };
}

function previousAddress(id: string | null | undefined): TurnAddress | null {
  if (id == null) return null;
  const address = parseResponseId(id);
  if (!address) throw previousResponseNotFound(id);
  return address;
}

function abortedWith(signal: AbortSignal): AbortController {
  const controller = new AbortController();
  signal.addEventListener("abort", () => controller.abort(clientLeft()), { once: true });
  return controller;
}

/** What ends the work for a client that has left. Nobody gets to see it. */
export function clientLeft(): ApiError {
  return new ApiError({ status: 499, message: "The client closed the request.", code: "client_closed_request" });
}

/**
 * Does what may have to wait for the creation's conversation under `ticket`. A client that leaves meanwhile leaves the
 * queue.
 */
export async function inQueue<T>(
  { caller, address, abort }: Creation,
  ticket: string,
  work: () => Promise<T>,
): Promise<T> {
  const leave = () => caller.waitUntil(caller.homes.stub(address.home).leaveConversation(ticket));
  abort.signal.addEventListener("abort", leave, { once: true });
  try {
    return await work();
  } finally {
    abort.signal.removeEventListener("abort", leave);
  }
}
