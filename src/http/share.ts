import { WorkerEntrypoint } from "cloudflare:workers";
import { endTurn, liveTurns, type TurnQuery } from "../api/live-turns.ts";
import { ownMetrics } from "../api/worker-metrics.ts";
import { serverStates } from "../assembly/model-server.ts";
import { loadConfig } from "../config/index.ts";
import type { RawEnv } from "../env.ts";
import { keyCache } from "../store/deployment/keys/key-cache.ts";
import { fullShares } from "../store/limits/disk-share.ts";
import { turnsUnderWay } from "../store/limits/permits.ts";
import { answerCall, answerFetch, withObjects } from "../store/objects/objects.ts";
import type { Answer, ObjectCall } from "../store/objects/rpc.ts";
import { telemetryOf } from "../telemetry/telemetry.ts";

/**
 * Answers the other workers of this machine, on a socket of its own (`cli/serve/workerd.ts`): for the objects of this
 * worker's share, and for state that only this process has. No other deployment exposes it.
 */
export class Share extends WorkerEntrypoint<RawEnv> {
  here(): void {}

  call(call: ObjectCall): Promise<Answer> {
    return answerCall(this.env, call);
  }

  override fetch(request: Request): Promise<Response> {
    return answerFetch(this.env, request);
  }

  metrics() {
    const config = loadConfig(withObjects(this.env));
    const { totals } = telemetryOf(config.telemetry);
    return totals && ownMetrics(config, this.env, totals);
  }

  serverStates() {
    return serverStates(loadConfig(withObjects(this.env)), turnsUnderWay());
  }

  forgetKeys(): void {
    const env = withObjects(this.env);
    keyCache(env, loadConfig(env).keys).forget();
  }

  noteFullShare(tenant: string): void {
    fullShares.add(tenant);
  }

  turns(query: TurnQuery) {
    return liveTurns(query);
  }

  endTurn(id: string): void {
    endTurn(id);
  }
}
