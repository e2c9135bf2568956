import type { Context } from "hono";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { toShownError } from "../api/faults.ts";
import { ApiError } from "../protocol/errors.ts";
import type { AppEnv } from "./app-env.ts";

/** The one place where errors become HTTP answers. */

export function renderError(error: Error, context: Context<AppEnv>): Response {
  const shown = toShownError(error, {
    requestId: context.get("requestId"),
    path: context.req.routePath,
    hasClientLeft: context.req.raw.signal.aborted,
  });
  return context.json(shown.toBody(), shown.status as ContentfulStatusCode, shown.headers);
}

/** The 404 of a path that no endpoint has. */
export function unknownUrl(context: Context<AppEnv>): ApiError {
  const message = `Unknown request URL: ${context.req.method} ${context.req.path}.`;
  return new ApiError({ status: 404, message, code: "unknown_url" });
}
