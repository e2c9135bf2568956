import { WorkerEntrypoint } from "cloudflare:workers";
import { createMiddleware } from "hono/factory";
import { ApiError } from "../protocol/errors.ts";
import { noteDisk } from "../store/free-disk.ts";
import { turnsBesideClients } from "../store/permits.ts";
import type { AppEnv } from "./app-env.ts";

/**
 * The end of a process of one's own: it takes no new requests while those under way end. workerd's own way of ending stops
 * to accept connections, and leaves those that are made meanwhile without an answer.
 */

/** True once this isolate ends: workerd has one for each process. */
let isDraining = false;

/** Refuses every request from when the process is told to end: 503, also of `/health`, so that balancers go elsewhere. */
export const unlessDraining = createMiddleware<AppEnv>(async (_, next) => {
  if (isDraining) throw stopping();
  await next();
});

/**
 * Answers the launcher of the process, on a socket of its own (`cli/worker-process.ts`). No other deployment lets anybody
 * reach it. POST begins the end, PUT `ok` or `low` says how the disk is; every answer tells how many turns are under way beside
 * their clients.
 */
export class Launcher extends WorkerEntrypoint {
  override async fetch(request: Request): Promise<Response> {
    if (request.method === "POST") isDraining = true;
    if (request.method === "PUT") noteDisk((await request.text()) === "low" ? "low" : "ok");
    return Response.json({ turns: turnsBesideClients() });
  }
}

function stopping(): ApiError {
  const message = "The server is about to stop. Please retry in a few seconds.";
  return new ApiError({ status: 503, message, code: "server_is_stopping", headers: { "retry-after": "2" } });
}
