import { WorkerEntrypoint } from "cloudflare:workers";
import { serverIsStopping } from "@responses-edge/responses-api/errors";
import { createMiddleware } from "hono/factory";
import { configure } from "../config/index.ts";
import type { Env } from "../env.ts";
import { noteDisk, noteMeasures, type ProcessMeasures } from "../store/free-disk.ts";
import { turnsBesideClients } from "../store/permits.ts";
import { endProcess, noteLauncher, processEnds } from "../store/process-end.ts";
import type { AppEnv } from "./app-env.ts";

/**
 * The end of a process of one's own: it takes no new requests while those under way end. workerd's own way of ending stops
 * to accept connections, and leaves those that are made meanwhile without an answer.
 */

/** Refuses every request from when the process is told to end: 503, also of `/health`, so that balancers go elsewhere. */
export const unlessDraining = createMiddleware<AppEnv>(async (_, next) => {
  if (processEnds()) throw serverIsStopping();
  await next();
});

/**
 * Answers the launcher of the process, on a socket of its own (`cli/worker-process.ts`). No other deployment lets anybody
 * reach it. POST begins the end, PUT `ok` or `low` says how the disk is, PUT of JSON what it has measured, PUT at
 * `/configuration` what the configuration's file says; every answer tells how many turns are under way beside their clients, and what is
 * wrong with a file that is not in force.
 */
export class Launcher extends WorkerEntrypoint<Env> {
  override async fetch(request: Request): Promise<Response> {
    noteLauncher();
    if (request.method === "POST") endProcess();
    let mistakes: readonly string[] = [];
    if (request.method === "PUT") {
      const text = await request.text();
      if (new URL(request.url).pathname === "/configuration")
        mistakes = configure(this.env, { file: JSON.parse(text) });
      else noteTold(text);
    }
    return Response.json({ turns: turnsBesideClients(), mistakes });
  }
}

function noteTold(text: string): void {
  if (text.startsWith("{")) noteMeasures(JSON.parse(text) as ProcessMeasures);
  else noteDisk(text === "low" ? "low" : "ok");
}
