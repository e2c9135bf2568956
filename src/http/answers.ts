import { OPEN_RESPONSES_VERSION, openResponsesStream } from "@responses-edge/bounded-io/event-stream/open-responses";
import { SSE_HEADERS } from "@responses-edge/bounded-io/event-stream/sse-stream";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { Context } from "hono";
import type { ItemPage } from "../store/home/item-store.ts";
import type { AppEnv } from "./app-env.ts";
import { unservedApi } from "./unserved.ts";

/** An answer of JSON text. */
export function jsonText(context: Context, json: string): Response {
  return context.body(json, 200, { "content-type": "application/json" });
}

/** A list object; the page's items are JSON text already. */
export function itemList(context: Context, { data, firstId, lastId, hasMore }: ItemPage): Response {
  const rest = JSON.stringify({ object: "list", first_id: firstId, last_id: lastId, has_more: hasMore });
  return jsonText(context, `${rest.slice(0, -1)},"data":${data}}`);
}

export const VERSION_HEADER = {
  name: OPEN_RESPONSES_VERSION,
  description:
    "Any value: events of reasoning in a stream are `response.reasoning.delta` and `response.reasoning.done`, as in Open Responses.",
};

/** An answer of server-sent events. */
export function eventStream(context: Context<AppEnv>, events: ReadableStream<Uint8Array>): Response {
  context.set("isStream", true);
  return context.body(speaksOpenResponses(context) ? openResponsesStream(events) : events, 200, SSE_HEADERS);
}

/** True if events have Open Responses' names, because the client sends its version or the operator configured it for all. */
export function speaksOpenResponses(context: Context<AppEnv>): boolean {
  return context.get("config").speaksOpenResponses || context.req.header(OPEN_RESPONSES_VERSION) !== undefined;
}

/**
 * The 404 of a path that no endpoint has, or one that the operator has not opened with the variable `openedBy`. `served`: the
 * path that the client may mean.
 */
export function unknownUrl(
  context: Context<AppEnv>,
  { openedBy, served }: { openedBy?: string | undefined; served?: string | undefined } = {},
): ApiError {
  const { method, path } = context.req;
  const api = unservedApi(path);
  let why = "";
  if (openedBy) why = ` The operator of this server can open it (${openedBy}).`;
  else if (served) why = ` This server has ${served}: a client's base URL ends in /v1, once.`;
  else if (api) why = ` OpenAI's ${api} API is not served by this server.`;
  return new ApiError({ status: 404, message: `Unknown request URL: ${method} ${path}.${why}`, code: "unknown_url" });
}
