import { type Context, Hono } from "hono";
import * as z from "zod";
import type { Config } from "../config.ts";
import { ChatEngine } from "../engine/chat/engine.ts";
import { resolveModel } from "../engine/models.ts";
import { type CreateRequest, createRequest, includeValues } from "../protocol/create-request.ts";
import { ApiError, invalidRequest, responseNotFound } from "../protocol/errors.ts";
import { MAX_ID_LENGTH, newTurnAddress, parseResponseId, type TurnAddress } from "../protocol/ids.ts";
import { parse } from "../protocol/validation.ts";
import { HomeClient, homeOf } from "../store/client.ts";
import { toInputItems, withItemIds } from "../turn/history.ts";
import { responseBody } from "../turn/response-builder.ts";
import { type Settle, Turn } from "../turn/turn.ts";
import type { AppEnv } from "./app-env.ts";
import { tenantCacheSalt } from "./auth.ts";
import { readJson } from "./body.ts";
import { SseStream } from "./sse-stream.ts";

/** `/v1/responses`: create, retrieve, delete, input items. */

const JSON_HEADERS = { "content-type": "application/json" };

const SSE_HEADERS = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};

export const responses = new Hono<AppEnv>()
  .post("/", async (context) => {
    const config = context.get("config");
    const request = parse(createRequest, await readJson(context.req.raw, config.maxRequestBytes));
    const abort = clientGone(context.req.raw.signal);
    const turn = await prepareTurn(context, request, abort.signal);
    return request.stream ? streamTurn(context, turn, config, abort) : answerTurn(context, turn);
  })
  .get("/:id", async (context) => {
    const query = parse(retrieveQuery, queryOf(context));
    const { id, address, homes } = locate(context);
    const found = await homes.stub(address.home).retrieve(address.turn);
    if (!found) throw responseNotFound(id);
    if (query.stream || query.starting_after !== undefined) {
      throw invalidRequest(
        query.stream ? "stream" : "starting_after",
        "Only responses created with 'background: true' and 'stream: true' can be streamed again.",
      );
    }
    return context.body(responseBody(found), 200, JSON_HEADERS);
  })
  .delete("/:id", async (context) => {
    const { id, address, homes } = locate(context);
    if (!(await homes.stub(address.home).delete(address.turn))) throw responseNotFound(id);
    return context.json({ id, object: "response.deleted", deleted: true });
  })
  .get("/:id/input_items", async (context) => {
    const { limit, order, after } = parse(inputItemsQuery, queryOf(context));
    const { id, address, homes } = locate(context);
    const page = await homes.stub(address.home).inputItems(address.turn, { limit, order, after });
    if (!page) throw responseNotFound(id);
    const { data, firstId, lastId, hasMore } = page;
    const rest = JSON.stringify({ object: "list", first_id: firstId, last_id: lastId, has_more: hasMore });
    return context.body(`${rest.slice(0, -1)},"data":${data}}`, 200, JSON_HEADERS);
  });

const boolean = z.enum(["true", "false"]).transform((text) => text === "true");
const wholeNumber = z
  .string()
  .regex(/^-?\d+$/, "Expected an integer.")
  .transform(Number);

const retrieveQuery = z.object({
  include: includeValues,
  stream: boolean.optional(),
  starting_after: wholeNumber.pipe(z.int().min(0)).optional(),
  include_obfuscation: boolean.optional(),
});

const inputItemsQuery = z.object({
  include: includeValues,
  limit: wholeNumber.pipe(z.int().min(1).max(100)).default(20),
  order: z.enum(["asc", "desc"]).default("desc"),
  after: z.string().min(1).max(MAX_ID_LENGTH).optional(),
});

/** The query as an object; `include` in all the forms that clients send (`include`, `include[]`, repeated, commas). */
function queryOf(context: Context<AppEnv>): Record<string, unknown> {
  const { searchParams } = new URL(context.req.url);
  const include = [...searchParams.getAll("include"), ...searchParams.getAll("include[]")].flatMap((value) =>
    value.split(","),
  );
  return { ...Object.fromEntries(searchParams), include };
}

/** Where the response of the path lives. Throws the 404 for an id that this server cannot have made. */
function locate(context: Context<AppEnv>): { id: string; address: TurnAddress; homes: HomeClient } {
  const id = context.req.param("id") ?? "";
  if (id.length > MAX_ID_LENGTH) {
    throw invalidRequest(
      "response_id",
      `Invalid 'response_id': string too long. Expected a string with maximum length ${MAX_ID_LENGTH}.`,
      "string_above_max_length",
    );
  }
  const address = parseResponseId(id);
  if (!address) throw responseNotFound(id);
  return { id, address, homes: new HomeClient(context.env, context.get("tenant")) };
}

interface PreparedTurn {
  turn: Turn;
  settle: Settle;
}

/** Reads the past, checks the input against it, and makes the turn. No upstream request but for a missing model name. */
async function prepareTurn(
  context: Context<AppEnv>,
  request: CreateRequest,
  signal: AbortSignal,
): Promise<PreparedTurn> {
  const config = context.get("config");
  const upstream = context.get("upstream");
  const tenant = context.get("tenant");
  const homes = new HomeClient(context.env, tenant);
  const given = toInputItems(request.input);
  const [model, { history, input }] = await Promise.all([
    resolveModel(request.model, config, upstream, signal),
    homes.past(given, request.previous_response_id),
  ]);
  const address = newTurnAddress(homeOf(given, request.previous_response_id));
  const createdAt = Date.now();
  const turn = new Turn({
    engine: new ChatEngine(upstream),
    request,
    address,
    model,
    history,
    input,
    cacheSalt: tenantCacheSalt(tenant, request.cache_salt),
    signal,
    clock: Date.now,
  });
  const settle: Settle = async ({ outcome, closed }) => {
    if (request.store === false) return;
    // Without a stream a failure is an HTTP error: nobody learns the id that a record of it would have.
    if (outcome.status === "failed" && !request.stream) return;
    await homes.settle(address.home, {
      turn: address.turn,
      parent:
        request.previous_response_id == null ? null : (parseResponseId(request.previous_response_id)?.turn ?? null),
      createdAt,
      input: JSON.stringify(withItemIds(input, address)),
      output: closed.output,
      response: closed.head,
    });
  };
  return { turn, settle };
}

async function answerTurn(context: Context<AppEnv>, { turn, settle }: PreparedTurn): Promise<Response> {
  const generation = await turn.start();
  const running = turn.run(Promise.resolve(generation), settle);
  // Lets the settlement finish when the client leaves.
  context.executionCtx.waitUntil(running);
  const { outcome, closed } = await running;
  if (outcome.status === "failed") throw outcome.error;
  return context.body(responseBody(closed), 200, JSON_HEADERS);
}

async function streamTurn(
  context: Context<AppEnv>,
  { turn, settle }: PreparedTurn,
  config: Config,
  abort: AbortController,
): Promise<Response> {
  const started = turn.start();
  // What the model server refuses at once is an HTTP error; when it takes longer than a client should be left without
  // a word, the stream begins and a later refusal is an event in it.
  await settledWithin(started, config.heartbeatMs);
  const stream = new SseStream(config.heartbeatMs, () => abort.abort(clientLeft()));
  const running = turn
    .run(started, settle, stream)
    .then(({ outcome }) => (outcome.status === "cancelled" ? stream.abandon() : stream.end()));
  context.executionCtx.waitUntil(running);
  return context.body(stream.readable, 200, SSE_HEADERS);
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
