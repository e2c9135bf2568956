import type { Config } from "../config.ts";
import type { Env } from "../env.ts";
import type { Observation } from "../telemetry/telemetry.ts";

/** What Hono's contexts carry here. */
export interface AppEnv {
  Bindings: Env;
  Variables: {
    config: Config;
    tenant: string;
    requestId: string;
    /** Only where there is telemetry. */
    observation: Observation | undefined;
  };
}
