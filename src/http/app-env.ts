import type { Config } from "../config.ts";
import type { Env } from "../env.ts";

/** What Hono's contexts carry here. */
export interface AppEnv {
  Bindings: Env;
  Variables: {
    config: Config;
    tenant: string;
    requestId: string;
  };
}
