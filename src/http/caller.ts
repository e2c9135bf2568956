import type { Context } from "hono";
import type { Caller } from "../api/transport.ts";
import { HomeClient } from "../store/client.ts";
import type { AppEnv } from "./app-env.ts";

/** Who asks, for the API: an authenticated HTTP request. Its past is in the tenant's homes. */
export function callerOf(context: Context<AppEnv>): Caller {
  const tenant = context.get("tenant");
  const homes = new HomeClient(context.env, tenant);
  return {
    config: context.get("config"),
    tenant,
    homes,
    past: homes,
    signal: context.req.raw.signal,
    observation: context.get("observation"),
    waitUntil: (promise) => context.executionCtx.waitUntil(promise),
  };
}
