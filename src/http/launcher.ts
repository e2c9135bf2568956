import { WorkerEntrypoint } from "cloudflare:workers";
import { SseStream } from "@responses-edge/bounded-io/event-stream/sse-stream";
import { followedRuns } from "../api/run-events.ts";
import { configure, type TextVariables } from "../config/index.ts";
import type { RawEnv } from "../env.ts";
import { reportAllEnded } from "../store/limits/ended-requests.ts";
import { turnsBesideClients } from "../store/limits/permits.ts";
import { noteDamaged, takeSuspects } from "../store/objects/damage.ts";
import { closeObjects, takeOver } from "../store/objects/hand-over.ts";
import { withObjects } from "../store/objects/objects.ts";
import type { Carried } from "../store/objects/owned-object.ts";
import { setOwnership, streamsHeld } from "../store/objects/ownership.ts";
import {
  type DiskState,
  noteDisk,
  type ProcessMeasures,
  processState,
  type Suspect,
} from "../store/objects/process-state.ts";

/** The interval at which a process that has retired looks whether its turns have ended. Milliseconds. */
const REPORT_POLL_MS = 50;

/** It reports the usage of those that have ended at each so many looks. */
const POLLS_PER_REPORT = 20;

/** A process that retires collects its garbage this often: what its hand-over has cut off is garbage by then. */
const MAX_COLLECTIONS = 5;

const encoder = new TextEncoder();

/**
 * Answers the launcher of a self-hosted process, on a socket of its own (`cli/serve/launcher-socket.ts`). No other deployment
 * exposes it. Every answer gives the number of turns that have not ended, and of streams whose header has been sent.
 */
export class Launcher extends WorkerEntrypoint<RawEnv> {
  override async fetch(request: Request): Promise<Response> {
    processState.hasLauncher = true;
    const { pathname: command } = new URL(request.url);
    if (command === "/retire") return this.#retire(request);
    const body = request.method === "POST" ? await request.json<unknown>() : undefined;
    const more = await this.#run(command, body);
    const turns = unendedTurns();
    // The launcher may end a process that has no more turns: their usage must be reported by then.
    if (processState.isEnding) await reportAllEnded();
    return Response.json({ turns, streams: SseStream.open + followedRuns() - streamsHeld(), ...more });
  }

  /**
   * Retires this process at the end of the request's body: it accepts no more connections then. The answer ends when its turns have ended
   * and their usage is reported: workerd does not end before.
   */
  #retire(request: Request): Response {
    const { readable, writable } = new IdentityTransformStream();
    const writer = writable.getWriter();
    const report = async () => {
      // The first byte sends the header.
      await writer.write(encoder.encode("\n"));
      // A launcher that has ended ends it, too.
      await request.text().catch(() => {});
      // From now on every answer waits until its usage is reported.
      processState.hasRetired = true;
      for (let polls = 0; unendedTurns() > 0; polls += 1) {
        // A count keeps what it has looked at until its piece of work ends.
        await scheduler.wait(REPORT_POLL_MS);
        if (polls % POLLS_PER_REPORT > 0) continue;
        // Turns and streams that were cut off are garbage. Those that go on for long are not stopped for it again and again.
        if (polls < MAX_COLLECTIONS * POLLS_PER_REPORT) globalThis.gc?.();
        // Nothing else reports the use of objects that this process has closed.
        await reportAllEnded();
      }
      await reportAllEnded();
      await writer.close();
    };
    // A launcher that has ended needs no answer.
    this.ctx.waitUntil(report().catch(() => {}));
    return new Response(readable);
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
      default:
        return undefined;
    }
  }
}

/** The number of foreground turns, and of streams that have not been sent to their end. */
function unendedTurns(): number {
  return turnsBesideClients() + SseStream.open;
}
