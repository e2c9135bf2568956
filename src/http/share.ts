import { WorkerEntrypoint } from "cloudflare:workers";
import { ApiError } from "@responses-edge/responses-api/errors";
import { endTurn, liveTurns, type TurnQuery } from "../api/live-turns.ts";
import { ownMetrics } from "../api/worker-metrics.ts";
import { loadConfig } from "../config/index.ts";
import type { Env } from "../env.ts";
import { keyCache } from "../store/deployment/keys/key-cache.ts";
import { fullShares } from "../store/limits/disk-share.ts";
import { askObject } from "../store/objects/hand-over.ts";
import { type ObjectCall, objectOf, routed } from "../store/objects/object-routes.ts";
import type { ShareAnswer } from "../store/objects/workers.ts";
import { telemetryOf } from "../telemetry/telemetry.ts";

type Method = (...args: unknown[]) => Promise<unknown>;

/**
 * Answers the other workers of this machine, on a socket of its own (`cli/serve/workerd.ts`): for the objects of this
 * worker's share, and for state that only this process has. No other deployment exposes it.
 */
export class Share extends WorkerEntrypoint<Env> {
  here(): void {}

  async call({ binding, name, method, args }: ObjectCall): Promise<ShareAnswer> {
    try {
      return { value: await askObject(routed(this.env), binding, name, (stub) => (stub[method] as Method)(...args)) };
    } catch (error) {
      if (error instanceof ApiError) return { error: error.toFields() };
      throw error;
    }
  }

  override async fetch(request: Request): Promise<Response> {
    const [binding, name] = objectOf(request);
    if (!binding) return new Response(null, { status: 404 });
    return askObject(routed(this.env), binding, name, (stub) => (stub as unknown as Fetcher).fetch(request));
  }

  metrics() {
    const config = loadConfig(routed(this.env));
    const totals = config.telemetry && telemetryOf(config.telemetry).totals;
    return totals && ownMetrics(config, this.env, totals);
  }

  forgetKeys(): void {
    const env = routed(this.env);
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
