import type { Context } from "hono";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { ConfigError } from "../config.ts";
import { ApiError, internalError } from "../protocol/errors.ts";
import type { AppEnv } from "./app-env.ts";

/** The one place where errors become HTTP answers. */

export function renderError(error: Error, context: Context<AppEnv>): Response {
  const shown = toApiError(error, context);
  return context.json(shown.toBody(), shown.status as ContentfulStatusCode, shown.headers);
}

/** The 404 of a path that no endpoint has. */
export function unknownUrl(context: Context<AppEnv>): ApiError {
  const message = `Unknown request URL: ${context.req.method} ${context.req.path}.`;
  return new ApiError({ status: 404, message, code: "unknown_url" });
}

/** What the client gets to see of an error. */
function toApiError(error: Error, context: Context<AppEnv>): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof ConfigError) {
    const message = `This deployment is misconfigured. ${error.message}.`;
    return new ApiError({ status: 500, message, code: "server_misconfigured" });
  }
  // What breaks off because its client has left is no fault.
  if (!context.req.raw.signal.aborted) logUnexpected(error, context);
  return internalError();
}

/** Logs where a fault happened. Its message stays out: it may quote a prompt or a key. */
function logUnexpected(error: Error, context: Context<AppEnv>): void {
  const at = (error.stack ?? "").split("\n").filter((line) => /^\s*at /.test(line));
  console.error(
    JSON.stringify({
      level: "error",
      request_id: context.get("requestId"),
      path: context.req.routePath,
      error: error.name,
      at,
    }),
  );
}
