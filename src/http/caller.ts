import type { Context } from "hono";
import type { Caller } from "../api/transport.ts";
import { HomeClient } from "../store/client.ts";
import type { AppEnv } from "./app-env.ts";
import { clientSession } from "./session-headers.ts";

/** Who asks, for the API: an authenticated HTTP request. Its past is in the tenant's homes. */
export function callerOf(context: Context<AppEnv>): Caller {
  const tenant = context.get("tenant");
  const homes = new HomeClient(context.env, tenant);
  return {
    config: context.get("config"),
    tenant,
    homes,
    past: homes,
    clientSession: clientSession(context.req.raw.headers),
    signal: context.req.raw.signal,
    waitUntil: (promise) => context.executionCtx.waitUntil(promise),
  };
}
