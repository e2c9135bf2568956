import { createHash, randomUUID } from "node:crypto";
import type { Context } from "hono";
import type { Replay } from "../contract/engine.ts";
import { createEngine } from "../engine/create-engine.ts";
import { resolveModel } from "../engine/models.ts";
import { type CreateRequest, conversationOf, createRequest } from "../protocol/create-request.ts";
import {
  ApiError,
  internalError,
  invalidRequest,
  previousResponseNotFound,
  responseNotFound,
  tooManyInProgress,
} from "../protocol/errors.ts";
import { withExtraFields } from "../protocol/extra-fields.ts";
import { newTurnAddress, parseResponseId, responseId, type TurnAddress } from "../protocol/ids.ts";
import type { InputItem, Item } from "../protocol/items.ts";
import { canonicalJson } from "../protocol/json.ts";
import type { ResponseObject } from "../protocol/response.ts";
import { SSE_HEADERS, SseStream } from "../protocol/sse-stream.ts";
import { echoTool, type Tool } from "../protocol/tools.ts";
import { parse } from "../protocol/validation.ts";
import { conversationAddress, HomeClient, homeOf, unwrap } from "../store/client.ts";
import { MAX_CALL_LENGTH, outputRoom, roomBeside } from "../store/limits.ts";
import type { RunSpec } from "../store/run-store.ts";
import { readHistory, type StoredResponse } from "../store/turn-store.ts";
import { isApproval, toolsetOf } from "../tools/create-toolset.ts";
import { HOSTED_TOOLS } from "../tools/hosted-tools.ts";
import { accessOf, type McpAccess } from "../tools/mcp/access.ts";
import { toInputItems, withItemIds } from "../turn/history.ts";
import { checkPromptMedia } from "../turn/media.ts";
import { responseBody } from "../turn/response-builder.ts";
import { type Settle, Turn, type TurnOptions } from "../turn/turn.ts";
import type { AppEnv } from "./app-env.ts";
import { tenantCacheSalt } from "./auth.ts";
import { readJson } from "./body.ts";
import { checkGivenMedia } from "./media-policy.ts";
import { checkVllmExtras } from "./vllm-extras.ts";

/**
 * `POST /v1/responses`, in its two hosts: a foreground turn runs here, beside its client, and stops with it; a
 * background run, or one with an `Idempotency-Key` (which another request may join), lives in its home.
 */

export const JSON_HEADERS = { "content-type": "application/json" };

/** A request and what is known of it before anything is asked of anybody. */
interface Call {
  context: Context<AppEnv>;
  request: CreateRequest;
  given: InputItem[];
  homes: HomeClient;
  conversation: TurnAddress | undefined;
  conversationId: string | undefined;
  address: TurnAddress;
  parent: string | null;
  createdAt: number;
  abort: AbortController;
}

export async function createResponse(context: Context<AppEnv>): Promise<Response> {
  const body = await readJson(context.req.raw, context.get("config").maxRequestBytes);
  const config = context.get("config");
  const request = withExtraFields(parse(createRequest, body), body, config.vllmExtraFields);
  checkVllmExtras(request, config.vllmExtras);
  const conversationId = conversationOf(request);
  const conversation = conversationId === undefined ? undefined : conversationAddress(conversationId);
  const given = toInputItems(request.input);
  await checkGivenMedia(given, "input", config, context.req.raw.signal);
  const previous = request.previous_response_id;
  const parent = previous == null ? undefined : parseResponseId(previous);
  if (previous != null && !parent) throw previousResponseNotFound(previous);
  const call: Call = {
    context,
    request,
    given,
    homes: new HomeClient(context.env, context.get("tenant")),
    conversation,
    conversationId,
    address: newTurnAddress(homeOf(given, request.previous_response_id, conversation)),
    parent: parent?.turn ?? null,
    createdAt: Date.now(),
    abort: clientGone(context.req.raw.signal),
  };
  const key = context.req.header("idempotency-key");
  if (key !== undefined) return joinOrHost(call, key, body);
  return request.background ? answerRun(call, await startRun(call)) : runHere(call);
}

// Foreground

async function runHere(call: Call): Promise<Response> {
  const place = call.conversationId === undefined ? undefined : await enterConversation(call, call.conversationId);
  let running = false;
  try {
    const { turn, settle, sink } = await prepareTurn(call, place);
    const started = turn.start();
    if (sink) {
      // What the model server refuses at once is an HTTP error; when it takes longer than a client should be left
      // without a word, the stream begins and a later refusal is an event in it.
      await settledWithin(started, call.context.get("config").heartbeatMs);
    } else await started;
    const ended = turn.run(started, settle).finally(() => place?.leave());
    running = true;
    return sink ? streamTurn(call, ended, sink) : await answerTurn(call, ended);
  } finally {
    if (!running) place?.leave();
  }
}

/** A turn's place in its conversation: the history it sees, and the right to be the only one. */
interface Place {
  history: Item[];
  replays: Replay[];
  token: string;
  leave(): void;
}

async function enterConversation(call: Call, id: string): Promise<Place> {
  const { context, homes, address } = call;
  const stub = homes.stub(address.home);
  const token = randomUUID();
  const { conversationLockWaitMs } = context.get("config");
  const entered = await inQueue(
    call,
    token,
    async () => await stub.enterConversation(id, token, conversationLockWaitMs),
  );
  if (!entered.ok) throw new ApiError(entered.error);
  const { lease, history } = entered.value;
  // Disposing of the lease, also by this Worker's death, gives the conversation to the next in line.
  return { ...readHistory(history), token, leave: () => lease[Symbol.dispose]() };
}

/** Does what may have to wait for the conversation under `ticket`; a client that leaves meanwhile leaves the queue. */
async function inQueue<T>(
  { context, homes, address, abort }: Call,
  ticket: string,
  work: () => Promise<T>,
): Promise<T> {
  const leave = () => context.executionCtx.waitUntil(homes.stub(address.home).leaveConversation(ticket));
  abort.signal.addEventListener("abort", leave, { once: true });
  try {
    return await work();
  } finally {
    abort.signal.removeEventListener("abort", leave);
  }
}

/** Reads the past, checks the input against it, and makes the turn. */
async function prepareTurn(call: Call, place: Place | undefined) {
  const { context, request, homes, address, abort, createdAt } = call;
  const config = context.get("config");
  const upstream = context.get("upstream");
  const [model, past] = await Promise.all([
    resolveModel(request.model, config, upstream, abort.signal),
    homes.past(call.given, request.previous_response_id),
  ]);
  checkPromptMedia({ ...(place ?? past), input: past.input }, request, config.isMediaListed);
  const engine = createEngine(model.engine, config, upstream, HOSTED_TOOLS);
  const cacheSalt = tenantCacheSalt(context.get("tenant"), request.cache_salt);
  const accepted = engine.accept(request);
  // Messages that the client kept itself are kept with the first item of the input, by its id; and an approved call
  // names the request by the id under which it is kept.
  const needsIds = request.previous_input_messages != null || past.input.some(isApproval);
  const input = needsIds ? withItemIds(past.input, address, place !== undefined) : past.input;
  const isKept = request.store !== false || place !== undefined;
  const room = isKept ? outputRoom(accepted, withItemIds(input, address, place !== undefined)) : MAX_CALL_LENGTH;
  const tools = toolsetOf(accepted, accessOf(accepted), {
    address,
    config,
    tenant: context.get("tenant"),
    history: (place ?? past).history,
    input,
    replays: (place ?? past).replays,
    output: [],
  });
  const { history, replays } = place ?? past;
  const options: TurnOptions = {
    engine,
    request: accepted,
    address,
    model,
    history,
    replays,
    input,
    hostedTools: HOSTED_TOOLS,
    tools,
    cacheSalt,
    createdAt,
    signal: abort.signal,
    clock: Date.now,
    maxRetries: config.maxRetries,
    room,
    recoveryTimeMs: config.foregroundRecoveryTimeMs,
    isServerGone: (signal) => upstream.isGone(signal),
    waitUntil: (promise) => context.executionCtx.waitUntil(promise),
  };
  const sink = request.stream ? new SseStream(config.heartbeatMs, () => abort.abort(clientLeft())) : undefined;
  const settle: Settle = async ({ outcome, closed }, terminate) => {
    const { status } = outcome;
    // Without a stream a failure is an HTTP error: nobody learns the id that a record of it would have.
    const keep = request.store !== false && (status !== "failed" || request.stream === true);
    const joins = place !== undefined && (status === "completed" || status === "incomplete");
    if (keep || joins) {
      await homes.settle(address.home, {
        turn: address.turn,
        parent: call.parent,
        createdAt,
        input: JSON.stringify(withItemIds(input, address, place !== undefined)),
        output: closed.output,
        messages: closed.messages,
        // A turn that is not to be stored leaves its items in its conversation, and no response.
        response: keep ? closed.head : null,
        lease: place ? { token: place.token, joins } : null,
      });
    }
    terminate();
  };
  return { turn: new Turn(options, sink), settle, sink };
}

async function answerTurn({ context }: Call, running: ReturnType<Turn["run"]>): Promise<Response> {
  // Lets the settlement finish when the client leaves.
  context.executionCtx.waitUntil(running);
  const { outcome, closed } = await running;
  if (outcome.status === "failed") throw outcome.error;
  return context.body(responseBody(closed), 200, JSON_HEADERS);
}

function streamTurn({ context }: Call, running: ReturnType<Turn["run"]>, stream: SseStream): Response {
  const ended = running.then(({ outcome }) => (outcome.status === "cancelled" ? stream.abandon() : stream.end()));
  context.executionCtx.waitUntil(ended);
  return context.body(stream.readable, 200, SSE_HEADERS);
}

// In the home

/** Begins a run in its home, and gives its response as it is by then. Throws what refuses it. */
async function startRun(call: Call): Promise<StoredResponse> {
  const { context, request, homes, abort, address } = call;
  const config = context.get("config");
  const [model, { input }] = await Promise.all([
    resolveModel(request.model, config, context.get("upstream"), abort.signal),
    homes.past(call.given, null),
  ]);
  const { input: _given, ...rest } = createEngine(model.engine, config, context.get("upstream"), HOSTED_TOOLS).accept(
    request,
  );
  const access = accessOf(rest);
  const tools = rest.tools?.map(echoTool);
  const spec: RunSpec = {
    home: address.home,
    turn: address.turn,
    parent: call.parent,
    createdAt: call.createdAt,
    request: { ...rest, ...(tools && { tools }) },
    input: withItemIds(input, address, call.conversation !== undefined),
    model,
    cacheSalt: tenantCacheSalt(context.get("tenant"), request.cache_salt),
    tenant: context.get("tenant"),
    // What the stored tools lack, only this process can have.
    withheld: Object.keys(access).filter((label) => !isReachable(tools, label, access)),
    inConversation: call.conversation !== undefined,
  };
  const specJson = JSON.stringify(spec);
  roomBeside(specJson.length + JSON.stringify(access).length);
  const ticket = randomUUID();
  const accepted = await inQueue(
    call,
    ticket,
    async () => await homes.stub(address.home).startRun(specJson, ticket, config.conversationLockWaitMs, access),
  );
  return unwrap(accepted);
}

/** Whether a server can be reached by what is shown of its tool. */
function isReachable(tools: Tool[] | undefined, label: string, access: Record<string, McpAccess>): boolean {
  const shown = tools?.find((tool) => tool.type === "mcp" && tool.server_label === label);
  const { authorization, headers, server_url: url } = access[label] ?? {};
  return shown?.type === "mcp" && shown.server_url === url && authorization === undefined && headers === undefined;
}

/** Answers with a run as its request wants it: as events, as it is, or when it has ended. */
async function answerRun({ context, request, homes, address }: Call, accepted: StoredResponse): Promise<Response> {
  if (request.stream) return followRun(context, homes, address, -1, obfuscates(request));
  if (request.background) return context.body(responseBody(accepted), 200, JSON_HEADERS);
  const finished = await homes.stub(address.home).finished(address.turn);
  // Deleted by somebody while this request waited for it.
  if (!finished) throw responseNotFound(responseId(address));
  const { error } = JSON.parse(finished.response.head) as { error: ResponseObject["error"] };
  if (error) throw finished.failure ? new ApiError(finished.failure) : failureOf(error);
  return context.body(responseBody(finished.response), 200, JSON_HEADERS);
}

/** A failure of which only the response is kept, as the HTTP error that a foreground request gets. */
function failureOf({ code, message }: NonNullable<ResponseObject["error"]>): ApiError {
  const status = code === "rate_limit_exceeded" ? 429 : code === "server_error" ? 502 : 400;
  return new ApiError({ status, message, code });
}

/** The same request under the same key is the same response; another one under it is refused. */
async function joinOrHost(call: Call, key: string, body: unknown): Promise<Response> {
  if (key.length === 0 || key.length > 255) {
    throw invalidRequest("Idempotency-Key", "Expected an Idempotency-Key of 1 to 255 characters.");
  }
  if (call.request.store === false) {
    throw invalidRequest(
      "Idempotency-Key",
      "An Idempotency-Key needs 'store: true': the response is kept to be given again.",
    );
  }
  const stub = call.homes.keyStub(key);
  const fingerprint = createHash("sha256").update(canonicalJson(body)).digest("hex");
  const claim = await stub.claim(fingerprint, call.address.home, call.address.turn);
  if (claim.kind === "conflict") {
    throw new ApiError({
      status: 422,
      message: "This Idempotency-Key was used with another request body.",
      param: "Idempotency-Key",
      code: "idempotency_key_reused",
    });
  }
  const address = claim.kind === "known" ? { home: claim.home, turn: claim.turn } : call.address;
  const keyed = { ...call, address };
  if (claim.kind === "known" && claim.begun) {
    const known = await call.homes.stub(address.home).retrieve(address.turn);
    // Deleted or expired: the key stands for that response, and brings no other to life.
    if (!known) throw responseNotFound(responseId(address));
    return answerRun(keyed, known);
  }
  // Not begun as far as is known: whoever comes second finds the run that the first has begun.
  let accepted: StoredResponse;
  try {
    accepted = await startRun(keyed);
  } catch (error) {
    // Refused before anything was begun: the client may mend it and try again. One that waited in vain for its
    // conversation keeps its place under the key; and whatever else happened, the run may have begun.
    if (error instanceof ApiError && error.status !== 409) await stub.unclaim(fingerprint, address.turn);
    throw error;
  }
  // Beside the answer. Where it fails, the key only forgets a deletion.
  const noted = stub.begun(fingerprint, address.home, address.turn).catch(() => {});
  const answer = await answerRun(keyed, accepted);
  await noted;
  return answer;
}

/**
 * A run's events as SSE, from the event after `after`. The home's answer goes to the client as it is.
 * Throws the 404 or 400 of a response that cannot be streamed.
 */
export async function followRun(
  context: Context<AppEnv>,
  homes: HomeClient,
  address: TurnAddress,
  after: number,
  obfuscation: boolean,
): Promise<Response> {
  const query = new URLSearchParams({ turn: address.turn, after: String(after), obfuscation: obfuscation ? "1" : "0" });
  const events = await homes
    .stub(address.home)
    .fetch(`http://home/events?${query}`, { signal: context.req.raw.signal });
  if (events.status === 429) throw tooManyInProgress("This response has as many readers as it may have.");
  if (events.status === 409) {
    throw invalidRequest("stream", "Only responses created with 'background: true' can be streamed again.");
  }
  if (!events.ok) throw new ApiError({ status: 404, message: "Response not found.", code: "response_not_found" });
  if (!events.body) throw internalError();
  return context.body(events.body, 200, SSE_HEADERS);
}

function obfuscates(request: CreateRequest): boolean {
  return request.stream_options?.include_obfuscation ?? true;
}

/** Waits for a promise, at most `ms`; rejects if it rejects in that time. */
async function settledWithin(promise: Promise<unknown>, ms: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  try {
    await Promise.race([promise, timeout]);
  } finally {
    clearTimeout(timer);
  }
}

/** Aborts when the platform tells that the client is gone. */
function clientGone(signal: AbortSignal): AbortController {
  const controller = new AbortController();
  signal.addEventListener("abort", () => controller.abort(clientLeft()), { once: true });
  return controller;
}

function clientLeft(): ApiError {
  return new ApiError({ status: 499, message: "The client closed the request.", code: "client_closed_request" });
}
