import { createHash, timingSafeEqual } from "node:crypto";
import { createMiddleware } from "hono/factory";
import type { Config } from "../config.ts";
import { ApiError } from "../protocol/errors.ts";
import type { AppEnv } from "./app-env.ts";

/** The tenant of every caller where `ALLOW_ANONYMOUS` is set and no keys are (local development). */
const ANONYMOUS_TENANT = "local";

/** The 401 of a caller that has not shown who it is. */
export function unauthorized(message: string, code: string): ApiError {
  return new ApiError({ status: 401, message, code, headers: { "www-authenticate": "Bearer" } });
}

/**
 * The tenant that an `Authorization` header names. Every configured key is compared, in constant time, so that the
 * time taken tells nothing about any of them. Throws the 401s.
 */
export function authenticate(header: string | undefined, config: Config): string {
  if (config.apiKeys.length === 0) {
    if (config.allowAnonymous) return ANONYMOUS_TENANT;
    throw unauthorized(
      "This deployment has no API keys and refuses every call. Set the secret API_KEYS (see README, 'API keys').",
      "no_api_keys_configured",
    );
  }
  const key = /^Bearer +(\S+)$/i.exec(header ?? "")?.[1];
  if (key === undefined) {
    throw unauthorized(
      "You didn't provide an API key. Send it in an Authorization header: Bearer YOUR_KEY.",
      "missing_api_key",
    );
  }
  const digest = createHash("sha256").update(key).digest();
  let tenant: string | undefined;
  for (const known of config.apiKeys) if (timingSafeEqual(digest, known.sha256)) tenant = known.tenant;
  if (tenant === undefined) throw unauthorized("Incorrect API key provided.", "invalid_api_key");
  return tenant;
}

/** Sets `tenant`, or answers 401. */
export const authentication = createMiddleware<AppEnv>(async (context, next) => {
  context.set("tenant", authenticate(context.req.header("authorization"), context.get("config")));
  await next();
});
