import type { Context } from "hono";
import { hearBoard } from "../api/board.ts";
import type { Caller } from "../api/transport.ts";
import { HomeClient } from "../store/client.ts";
import type { AppEnv } from "./app-env.ts";
import { clientSession } from "./session-headers.ts";

/** Who asks, for the API: an authenticated HTTP request. Its past is in the tenant's homes. */
export function callerOf(context: Context<AppEnv>): Caller {
  const tenant = context.get("tenant");
  const homes = new HomeClient(context.env, tenant);
  const config = context.get("config");
  const waitUntil = (promise: Promise<unknown>) => context.executionCtx.waitUntil(promise);
  hearBoard(config, context.env.BOARD, waitUntil);
  return {
    config,
    tenant,
    homes,
    past: homes,
    clientSession: clientSession(context.req.raw.headers),
    signal: context.req.raw.signal,
    waitUntil,
  };
}
