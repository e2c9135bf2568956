import { ApiError } from "@responses-edge/responses-api/errors";
import { OPEN_RESPONSES_VERSION, openResponsesStream } from "@responses-edge/responses-api/open-responses";
import { SSE_HEADERS } from "@responses-edge/responses-api/sse-stream";
import type { Context } from "hono";
import type { ItemPage } from "../store/item-store.ts";
import type { AppEnv } from "./app-env.ts";

/** An answer of JSON text. */
export function jsonText(context: Context, json: string): Response {
  return context.body(json, 200, { "content-type": "application/json" });
}

/** A list object; the page's items are JSON text already. */
export function itemList(context: Context, { data, firstId, lastId, hasMore }: ItemPage): Response {
  const rest = JSON.stringify({ object: "list", first_id: firstId, last_id: lastId, has_more: hasMore });
  return jsonText(context, `${rest.slice(0, -1)},"data":${data}}`);
}

/** An answer of server-sent events. */
export function eventStream(context: Context<AppEnv>, events: ReadableStream<Uint8Array>): Response {
  return context.body(speaksOpenResponses(context) ? openResponsesStream(events) : events, 200, SSE_HEADERS);
}

/** True if events have Open Responses' names: the client sends its version, or the operator wants it for all. */
export function speaksOpenResponses(context: Context<AppEnv>): boolean {
  return context.get("config").speaksOpenResponses || context.req.header(OPEN_RESPONSES_VERSION) !== undefined;
}

/** The 404 of a path that no endpoint has. */
export function unknownUrl(context: Context<AppEnv>): ApiError {
  const message = `Unknown request URL: ${context.req.method} ${context.req.path}.`;
  return new ApiError({ status: 404, message, code: "unknown_url" });
}
