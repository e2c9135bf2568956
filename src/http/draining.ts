import { WorkerEntrypoint } from "cloudflare:workers";
import { configure } from "../config/index.ts";
import type { Env } from "../env.ts";
import { turnsBesideClients } from "../store/permits.ts";
import { type ProcessMeasures, processState } from "../store/process-state.ts";

/**
 * The end of a process of one's own: it takes no new requests while those under way end. workerd's own way of ending stops
 * to accept connections, and leaves those that are made meanwhile without an answer.
 */

/**
 * Answers the launcher of the process, on a socket of its own (`cli/worker-process.ts`). No other deployment lets anybody
 * reach it. POST begins the end, PUT `ok` or `low` says how the disk is, PUT of JSON what it has measured, PUT at
 * `/configuration` what the configuration's file says; every answer tells how many turns are under way beside their clients, and what is
 * wrong with a file that is not in force.
 */
export class Launcher extends WorkerEntrypoint<Env> {
  override async fetch(request: Request): Promise<Response> {
    processState.hasLauncher = true;
    if (request.method === "POST") processState.isEnding = true;
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
  if (text.startsWith("{")) processState.measures = JSON.parse(text) as ProcessMeasures;
  else processState.disk = text === "low" ? "low" : "ok";
}
