import { WorkerEntrypoint } from "cloudflare:workers";
import { configure, type TextVariables } from "../config/index.ts";
import type { RawEnv } from "../env.ts";
import { turnsBesideClients } from "../store/limits/permits.ts";
import { noteDamaged, takeSuspects } from "../store/objects/damage.ts";
import { adoptObjects, adoptRest, giveUpObjects, releaseObjects } from "../store/objects/hand-over.ts";
import { withObjects } from "../store/objects/objects.ts";
import {
  hasGiven,
  holdAnswers,
  keptObjects,
  noteSuccessor,
  rungObjects,
  succeed,
  takeBack,
  takeReleased,
} from "../store/objects/ownership.ts";
import {
  type DiskState,
  noteDisk,
  type ProcessMeasures,
  processState,
  type Suspect,
} from "../store/objects/process-state.ts";
import { setSide } from "../store/objects/workers.ts";

/**
 * Answers the launcher of a self-hosted process, on a socket of its own (`cli/serve/launcher-socket.ts`). No other deployment
 * exposes it. Every answer gives the number of foreground turns. A predecessor's also gives the objects that it has,
 * and those that it has given up since its last answer.
 */
export class Launcher extends WorkerEntrypoint<RawEnv> {
  override async fetch(request: Request): Promise<Response> {
    processState.hasLauncher = true;
    const body = request.method === "POST" ? await request.json<unknown>() : undefined;
    let mistakes: readonly string[] | undefined;
    let suspects: Suspect[] | undefined;
    let keeps: { key: string; file: string }[] | undefined;
    switch (new URL(request.url).pathname) {
      case "/end":
        processState.isEnding = true;
        break;
      case "/disk":
        noteDisk(body as DiskState);
        break;
      case "/configuration":
        mistakes = configure(withObjects(this.env), { file: body as TextVariables });
        break;
      case "/measures":
        processState.measures = body as ProcessMeasures;
        break;
      case "/side": {
        const { worker, side } = body as { worker: number; side: number };
        setSide(worker, side);
        break;
      }
      case "/suspects":
        suspects = takeSuspects();
        break;
      case "/damaged":
        noteDamaged(body as string[]);
        break;
      // A predecessor
      case "/give":
        keeps = await giveUpObjects(this.env);
        break;
      case "/take-back":
        takeBack();
        break;
      case "/succeeded":
        noteSuccessor();
        processState.isHandedOver = true;
        break;
      case "/hold":
        holdAnswers(body as number);
        break;
      // Its successor
      case "/succeed":
        succeed(body as string[]);
        break;
      case "/adopt":
        await adoptObjects(this.env, body as string[]);
        break;
      case "/adopt-rest":
        await adoptRest(this.env, body as string[]);
    }
    if (hasGiven()) await releaseObjects(this.env);
    // Only the request for the state gets the names. Callers that send other facts do not read them.
    const released = request.method === "GET" ? takeReleased() : [];
    const predecessor = hasGiven() && { kept: keptObjects().length, released, rung: rungObjects() };
    return Response.json({
      turns: turnsBesideClients(),
      ...(mistakes && { mistakes }),
      ...(keeps && { keeps }),
      ...(suspects && { suspects }),
      ...predecessor,
    });
  }
}
