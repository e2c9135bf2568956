import { ApiError } from "@responses-edge/responses-api/errors";
import type { Context } from "hono";
import type { ItemPage } from "../store/home/item-store.ts";
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

/** The 404 of a path that no endpoint has. */
export function unknownUrl(context: Context<AppEnv>): ApiError {
  const message = `Unknown request URL: ${context.req.method} ${context.req.path}.`;
  return new ApiError({ status: 404, message, code: "unknown_url" });
}
