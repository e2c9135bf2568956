import type { Context, Next } from "hono";
import { ConfigError } from "../config/index.ts";
import { ApiError, internalError } from "../protocol/errors.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import type { AppEnv, Authenticated } from "./app-env.ts";

/** An HTTP request as telemetry sees it. */

/** OpenTelemetry's name of an unknown method. */
const OTHER_METHOD = "_OTHER";
const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"]);

/**
 * Observes a request from here to its answer; one whose answer goes on as a stream tells itself when that has ended
 * (`Caller.observation`). `staticPaths` have no route of their own, and are looked up by those that have one.
 */
export async function observed(
  context: Context<AppEnv>,
  next: Next,
  telemetry: Telemetry,
  staticPaths: ReadonlySet<string>,
): Promise<void> {
  const { headers, signal } = context.req.raw;
  const observation = telemetry.observe(
    { requestId: context.get("requestId"), transport: "http", headers },
    { waitUntil: (promise) => context.executionCtx.waitUntil(promise), isBrief: false },
  );
  context.set("observation", observation);
  await next();
  // Nobody is known who has not been let in.
  const authenticated: Authenticated | undefined = context.get("authenticated");
  const asked = authenticated?.admin === undefined ? authenticated?.identity : undefined;
  const { path, method, routePath } = context.req;
  const { res, error } = context;
  const isStream = res.headers.get("content-type")?.startsWith("text/event-stream") === true;
  observation.know({
    endpoint: `${METHODS.has(method) ? method : OTHER_METHOD} ${staticPaths.has(path) ? path : routePath}`,
    tenant: asked?.tenant,
    keyId: asked?.keyId,
    hasClientLeft: signal.aborted,
    ...(isStream && { transport: "sse" }),
  });
  observation.answered(res.status, error && codeOf(error));
}

/** The code that an error is answered with. */
function codeOf(error: Error): string {
  if (error instanceof ApiError) return error.code;
  return error instanceof ConfigError ? "server_misconfigured" : internalError().code;
}
