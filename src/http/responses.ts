import { SseStream } from "@responses-edge/bounded-io/event-stream/sse-stream";
import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { responseBody } from "@responses-edge/turn/response";
import type { Context } from "hono";
import { compactConversation } from "../api/compact.ts";
import { createResponse } from "../api/create-response.ts";
import { toShownError } from "../api/faults.ts";
import { countInputTokens } from "../api/input-tokens.ts";
import { listResponses } from "../api/listed-responses.ts";
import { pageQuery, responsesQuery, retrieveQuery, treeQuery } from "../api/queries.ts";
import { promptOf } from "../api/response-prompt.ts";
import {
  cancelResponse,
  deleteResponse,
  listInputItems,
  responseAddress,
  responseTree,
  retrieveResponse,
  updateResponse,
} from "../api/responses.ts";
import { followResponse } from "../api/run-events.ts";
import type { SlowAnswer } from "../api/transport.ts";
import { loadConfig } from "../config/index.ts";
import type { Identity } from "../contract/grants.ts";
import type { ConnectionOptions } from "../socket/connection.ts";
import { chosenSubprotocol, openSocket, wantsSocket } from "../socket/upgrade.ts";
import { reportEnded } from "../store/limits/ended-requests.ts";
import { AnalyticsWriter } from "../telemetry/analytics.ts";
import { telemetryOf } from "../telemetry/telemetry.ts";
import { eventStream, itemList, jsonText, speaksOpenResponses, VERSION_HEADER } from "./answers.ts";
import { authenticate } from "./auth.ts";
import { CODEX_TURN_STATE, callerOf, callWithBody, codexTurnState, identityOf, jsonBody, ownerOf } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { byTenantIn, json, ok } from "./openapi/operation.ts";

const byTenant = byTenantIn("Responses");

export const responses = [
  endpoint("POST /v1/responses", {
    summary: "create; JSON, or SSE with `stream: true`",
    operation: byTenant("createResponse", "turn", {
      headers: [
        {
          name: "Idempotency-Key",
          description: "The same request with the same key gets the same response, for 24 hours.",
        },
        VERSION_HEADER,
      ],
      body: json("CreateResponse"),
      answers: { 200: { "application/json": "ResponseObject", "text/event-stream": "ResponseStreamEvent" } },
      errors: [404, 409, 422, 424, 429],
    }),
    handle: async (context) => {
      const { heartbeatMs, jsonHeartbeats, showsUpstream } = context.get("config");
      const turnState = codexTurnState(context.req.raw.headers);
      /** The name of the model server that answered, where the operator shows it. */
      let server: string | undefined;
      const slowAnswer = jsonHeartbeats ? new JsonHeartbeats(heartbeatMs) : undefined;
      const answer = async () => {
        const { caller, body } = await callWithBody(context);
        if (turnState !== undefined) context.header(CODEX_TURN_STATE, turnState);
        if (showsUpstream) {
          caller.onAttempt = (call) => {
            if (call.fault === undefined) server = call.server;
          };
        }
        const created = await createResponse(caller, body, {
          idempotencyKey: context.req.header("idempotency-key"),
          turnState,
          openSink: (onLeft) => new SseStream(heartbeatMs, onLeft),
          slowAnswer,
        });
        if (server !== undefined) context.header("x-upstream", server);
        switch (created.kind) {
          case "response":
            return jsonText(context, responseBody(created.response));
          case "events":
            return eventStream(context, created.sink.readable);
          case "run":
            return eventStream(context, created.events);
        }
      };
      return slowAnswer ? slowAnswer.before(answer(), context) : answer();
    },
  }),
  endpoint("POST /v1/responses/input_tokens", {
    summary: "count the prompt that a create with the same body would send; nothing is stored",
    operation: byTenant("countInputTokens", "turn", {
      body: json("CountInputTokens"),
      answers: ok("InputTokenCount"),
      errors: [404, 429],
    }),
    handle: async (context) => {
      const { caller, body } = await callWithBody(context);
      const { tokens, isEstimate } = await countInputTokens(caller, body);
      if (isEstimate) context.header("x-input-tokens", "estimated");
      return context.json({ object: "response.input_tokens", input_tokens: tokens });
    },
  }),
  endpoint("POST /v1/responses/compact", {
    summary:
      "compact `input` and what `previous_response_id` continues: the user's messages and one `compaction` item; nothing is stored",
    operation: byTenant("compactConversation", "turn", {
      body: json("CompactConversation"),
      answers: ok("CompactedResponse"),
      errors: [404, 429],
    }),
    handle: async (context) => {
      const { caller, body } = await callWithBody(context);
      return context.json(await compactConversation(caller, body));
    },
  }),
  endpoint("GET /v1/responses", {
    summary:
      "the stored responses, newest first: `limit` 1–100 (20), `order` `desc`\\|`asc`, `after`, `id`, `model`, `status`, `conversation`, `metadata[…]`, `created_at[gte]`, `created_at[lt]`, `query`, `group_by=tree` ([docs/storage.md](docs/storage.md#the-list-of-responses)); with `Upgrade: websocket`: WebSocket mode ([docs/websocket.md](docs/websocket.md))",
    operation: byTenant("listResponses", "read", {
      answers: { 200: { "application/json": "ResponseList" }, 101: {} },
      errors: [426],
      description:
        'The list, which OpenAI has in its dashboard only, is there where the deployment has `RESPONSE_INDEX`; else 426.\n\nIn WebSocket mode, frames are JSON texts. A client sends `{"type":"response.create","stream_id"?, …}` with the fields of `CreateResponse`; it is sent `ResponseStreamEvent`s, with the `stream_id`, and errors as `{"type":"error","status","error"}`.',
    }),
    query: responsesQuery,
    handle: async (context, query) => {
      const { config, requestId } = context.var;
      if (!wantsSocket(context.req.raw)) {
        if (!config.listsResponses || isHandshake(context.req.raw)) throw upgradeRequired();
        return context.json(await listResponses(callerOf(context), context.env.RESPONSE_INDEXES, query));
      }
      const { tenant } = identityOf(context);
      const { headers } = context.req.raw;
      const turnState = codexTurnState(headers);
      const telemetry = telemetryOf(config.telemetry);
      // The connection is one invocation, whose data points share one limit.
      const analytics = telemetry.config.analytics && new AnalyticsWriter(telemetry.config.analytics);
      const waitUntil = (promise: Promise<unknown>) => context.executionCtx.waitUntil(promise);
      const observeCreate = (identity: Identity) => {
        const { keyId } = identity;
        const request = {
          requestId,
          transport: "websocket",
          endpoint: "response.create",
          tenant,
          keyId,
          headers,
        } as const;
        const observation = telemetry.observe(request, { waitUntil, isBrief: false, analytics });
        observation.reportTo((ended) => reportEnded(ownerOf(context, identity), ended));
        return observation;
      };
      const options: ConnectionOptions = {
        tenant,
        config,
        turnState,
        speaksOpenResponses: speaksOpenResponses(context),
        caller: async (signal) => {
          const { env } = context;
          const sources = { config: loadConfig(env), env, waitUntil };
          const asked = await authenticate(context.req.raw, sources);
          if (asked.identity?.tenant !== tenant) throw otherTenant();
          return {
            ...callerOf(context, asked.identity),
            counting: { isDone: false },
            tell: undefined,
            signal,
            observation: observeCreate(asked.identity),
          };
        },
        shown: (error, hasClientLeft) => toShownError(error, { requestId, path: context.req.routePath, hasClientLeft }),
        onEnded: () => analytics?.end(),
      };
      const answered = {
        ...chosenSubprotocol(context.req.raw),
        ...(turnState !== undefined && { [CODEX_TURN_STATE]: turnState }),
      };
      const executionCtx = context.executionCtx as typeof context.executionCtx & { abort?(reason: string): void };
      return await openSocket(options, answered, (reason) => executionCtx.abort?.(reason));
    },
  }),
  endpoint("GET /v1/responses/:id", {
    summary:
      "retrieve; with `stream=true`, `starting_after`, `include_obfuscation`: replay a background response's events and follow it",
    operation: byTenant("retrieveResponse", "read", {
      headers: [VERSION_HEADER],
      answers: { 200: { "application/json": "ResponseObject", "text/event-stream": "ResponseStreamEvent" } },
    }),
    query: retrieveQuery,
    handle: async (context, { include, stream, starting_after: after, include_obfuscation: obfuscation = true }) => {
      const address = responseAddress(context.req.param("id"));
      const caller = callerOf(context);
      if (stream) {
        const timing = include.includes("timing");
        return eventStream(context, await followResponse(caller, address, { after: after ?? -1, obfuscation, timing }));
      }
      if (after !== undefined) {
        throw invalidRequest("starting_after", "'starting_after' is only valid with 'stream=true'.");
      }
      return jsonText(context, responseBody(await retrieveResponse(caller, address, include)));
    },
  }),
  endpoint("POST /v1/responses/:id", {
    summary: "change its `metadata`",
    operation: byTenant("updateResponse", "request", {
      body: json("UpdateMetadata"),
      answers: ok("ResponseObject"),
      errors: [409],
      description:
        "Replaces the metadata of a stored response, as OpenAI's API does for conversations. A response that is still in progress is a 409.",
    }),
    handle: async (context) => {
      const address = responseAddress(context.req.param("id"));
      const body = await jsonBody(context);
      return jsonText(context, responseBody(await updateResponse(callerOf(context), address, body)));
    },
  }),
  endpoint("DELETE /v1/responses/:id", {
    summary: "delete, for good",
    operation: byTenant("deleteResponse", "read", { answers: ok("DeletedResponse") }),
    handle: async (context) => {
      const id = context.req.param("id");
      await deleteResponse(callerOf(context), responseAddress(id));
      return context.json({ id, object: "response.deleted", deleted: true });
    },
  }),
  endpoint("POST /v1/responses/:id/cancel", {
    summary: "stop a background response",
    operation: byTenant("cancelResponse", "read", { answers: ok("ResponseObject"), errors: [400] }),
    handle: async (context) => {
      const address = responseAddress(context.req.param("id"));
      return jsonText(context, responseBody(await cancelResponse(callerOf(context), address)));
    },
  }),
  endpoint("GET /v1/responses/:id/input_items", {
    summary: "its input: `limit` 1–100 (20), `order` `desc`\\|`asc`, `after`, `include`",
    operation: byTenant("listInputItems", "read", { answers: ok("ItemList") }),
    query: pageQuery,
    handle: async (context, page) => {
      const address = responseAddress(context.req.param("id"));
      return itemList(context, await listInputItems(callerOf(context), address, page));
    },
  }),
  endpoint("GET /v1/responses/:id/prompt", {
    summary:
      "its prompt, made again from what is stored: messages and tools as the model server was sent them, and as rendered ([docs/storage.md](docs/storage.md#the-prompt-of-a-response))",
    operation: byTenant("readResponsePrompt", "read", { answers: ok("ResponsePrompt"), errors: [400, 429] }),
    handle: async (context) =>
      context.json(await promptOf(callerOf(context), responseAddress(context.req.param("id")))),
  }),
  endpoint("GET /v1/responses/:id/tree", {
    summary:
      "all responses of its conversation tree, with previews: `limit` 1–100 (20), `order` `desc`\\|`asc` of ids, `after`",
    operation: byTenant("readResponseTree", "read", { answers: ok("Tree") }),
    query: treeQuery,
    handle: async (context, page) => {
      const address = responseAddress(context.req.param("id"));
      return itemList(context, await responseTree(callerOf(context), address, page));
    },
  }),
];

/** The 401 of a connection whose key now belongs to another tenant: the connection's state is the first one's. */
function otherTenant(): ApiError {
  return new ApiError({ status: 401, message: "This API key names another tenant now.", code: "invalid_api_key" });
}

/** True for a WebSocket handshake whose `Upgrade` a proxy has removed. */
function isHandshake({ headers }: Request): boolean {
  return headers.has("sec-websocket-key") || headers.has("sec-websocket-version");
}

/**
 * The 426 of a `GET` that could only be a WebSocket's. Clients that try a WebSocket first (Codex) then use HTTP at
 * once. workerd controls the `Upgrade` header that belongs to a 426, and leaves it out.
 */
function upgradeRequired(): ApiError {
  const message =
    "This endpoint is for WebSockets: send 'Upgrade: websocket'. Over HTTP, create responses with POST; a deployment with RESPONSE_INDEX=true lists them here.";
  return new ApiError({ status: 426, message, code: "upgrade_required" });
}

const HEARTBEAT = new TextEncoder().encode("\n");

/**
 * White space before the JSON of a slow answer (`JSON_HEARTBEATS`). On plain workerd, a gateway learns that a client
 * has left only when a write fails. JSON may begin with white space (RFC 8259 §2).
 */
class JsonHeartbeats implements SlowAnswer {
  readonly #intervalMs: number;
  readonly #first = Promise.withResolvers<ReadableStream<Uint8Array>>();
  #timer: ReturnType<typeof setInterval> | undefined;
  #writer: WritableStreamDefaultWriter<Uint8Array> | undefined;

  /** `intervalMs`: time between heartbeats, and before the first one. */
  constructor(intervalMs: number) {
    this.#intervalMs = intervalMs;
  }

  get hasBegun(): boolean {
    return this.#writer !== undefined;
  }

  begin(onLeft: () => void): void {
    const beat = (): void => {
      if (!this.#writer) {
        const { readable, writable } = new IdentityTransformStream();
        this.#writer = writable.getWriter();
        this.#first.resolve(readable);
      }
      this.#writer.write(HEARTBEAT).catch(() => {
        clearInterval(this.#timer);
        onLeft();
      });
    };
    this.#timer = setInterval(beat, this.#intervalMs);
  }

  /**
   * The answer that `answering` resolves to, if it comes before the first heartbeat. Otherwise an answer of heartbeats and then
   * its body: the first heartbeat sends the status 200 and the headers. Rejects as `answering` does before then.
   */
  async before(answering: Promise<Response>, context: Context): Promise<Response> {
    const ended = answering.finally(() => clearInterval(this.#timer));
    const first = await Promise.race([ended, this.#first.promise]);
    if (first instanceof Response) return first;
    context.executionCtx.waitUntil(this.#end(ended));
    return context.body(first, 200, { "content-type": "application/json" });
  }

  /** Never rejects: a client that has left gets nothing; one whose answer fails sees the connection break off. */
  async #end(answering: Promise<Response>): Promise<void> {
    const writer = this.#writer;
    try {
      const answer = await answering;
      await writer?.write(new Uint8Array(await answer.arrayBuffer()));
      await writer?.close();
    } catch {
      await writer?.abort("The answer was given up.").catch(() => {});
    }
  }
}
