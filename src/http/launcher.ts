import { WorkerEntrypoint } from "cloudflare:workers";
import { SseStream } from "@responses-edge/bounded-io/event-stream/sse-stream";
import { followedRuns } from "../api/run-events.ts";
import { configure, type TextVariables } from "../config/index.ts";
import type { RawEnv } from "../env.ts";
import { reportRequests } from "../store/deployment/request-reports.ts";
import { reportUsage } from "../store/limits/allowances.ts";
import { turnsBesideClients } from "../store/limits/permits.ts";
import { noteDamaged, takeSuspects } from "../store/objects/damage.ts";
import { closeObjects, takeOver } from "../store/objects/hand-over.ts";
import { withObjects } from "../store/objects/objects.ts";
import type { Carried } from "../store/objects/owned-object.ts";
import { setOwnership, streamsHeld } from "../store/objects/ownership.ts";
import {
  clientsAreToLeave,
  type DiskState,
  noteDisk,
  type ProcessMeasures,
  processState,
  type Suspect,
} from "../store/objects/process-state.ts";

/** How long after `/retire` clients are told to leave: workerd has stopped accepting connections by then. Milliseconds. */
const RETIRING_MS = 200;

/** How long an answer waits for the usage to be reported. Milliseconds. */
const REPORTING_MS = 1_000;

/**
 * Answers the launcher of a self-hosted process, on a socket of its own (`cli/serve/launcher-socket.ts`). No other deployment
 * exposes it. Every answer gives the number of foreground turns, and of streams whose header has been sent.
 */
export class Launcher extends WorkerEntrypoint<RawEnv> {
  override async fetch(request: Request): Promise<Response> {
    processState.hasLauncher = true;
    const body = request.method === "POST" ? await request.json<unknown>() : undefined;
    const more = await this.#run(new URL(request.url).pathname, body);
    const turns = turnsBesideClients();
    // An answer without turns lets the launcher end the process: their use must be reported by then.
    if (clientsAreToLeave()) {
      const { BOARD: boards } = withObjects(this.env);
      await Promise.race([Promise.all([reportUsage(), reportRequests(boards)]), scheduler.wait(REPORTING_MS)]);
    }
    return Response.json({
      turns,
      streams: SseStream.open + followedRuns() - streamsHeld(),
      ...more,
    });
  }

  /** Runs a command. Gives what its answer has beside the numbers. */
  async #run(command: string, body: unknown): Promise<object | undefined> {
    switch (command) {
      case "/end":
        processState.isEnding = true;
        return undefined;
      case "/disk":
        noteDisk(body as DiskState);
        return undefined;
      case "/configuration":
        return { mistakes: configure(withObjects(this.env), { file: body as TextVariables }) };
      case "/measures":
        processState.measures = body as ProcessMeasures;
        return undefined;
      case "/suspects":
        return { suspects: takeSuspects() };
      case "/damaged":
        noteDamaged(body as Suspect[]);
        return undefined;
      // The steps of a hand-over (`cli/reload/hand-over.ts`)
      case "/close":
        return { carried: await closeObjects(this.env, body as number) };
      case "/take-over":
        await takeOver(this.env, body as Carried[]);
        return undefined;
      case "/moved":
        setOwnership("forwards");
        return undefined;
      case "/hold":
        processState.holdsAnswers = true;
        return undefined;
      case "/retire":
        processState.retiresAt = Date.now() + RETIRING_MS;
        return undefined;
      default:
        return undefined;
    }
  }
}
