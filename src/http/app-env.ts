import type { Counting } from "../api/transport.ts";
import type { Config } from "../config/index.ts";
import type { Identity } from "../contract/grants.ts";
import type { Env } from "../env.ts";
import type { Observation } from "../telemetry/telemetry.ts";

/** The caller: a tenant, or an administrator, who is no tenant. */
export type Authenticated = { identity: Identity; admin?: undefined } | { admin: string; identity?: undefined };

/** Hono's contexts here. */
export interface AppEnv {
  Bindings: Env;
  Variables: {
    config: Config;
    authenticated: Authenticated;
    /** Only of a request that is counted. */
    counting: Counting | undefined;
    requestId: string;
    /** The length of the request's body in bytes, once it was read. */
    bodyLength: number | undefined;
    /** Only where there is telemetry. */
    observation: Observation | undefined;
  };
}
