import type { Counting } from "../api/transport.ts";
import type { Config, Role } from "../config/index.ts";
import type { Identity } from "../contract/grants.ts";
import type { Env } from "../env.ts";
import type { Observation } from "../telemetry/telemetry.ts";

/** An administrator, as the router and the admin API know it. */
export interface Admin {
  /** The actor of the audit log: the name of a root key, or `jwt:` and the subject of a token. */
  name: string;
  role: Role;
  /** The only tenant of a tenant admin; undefined for an administrator of all tenants. */
  tenant?: string | undefined;
}

/** The caller: a tenant, an administrator, or both (a token may name both). `actor` is the caller in the audit log. */
export type Authenticated = { actor: string } & (
  | { identity: Identity; admin?: Admin | undefined }
  | { admin: Admin; identity?: undefined }
);

/** The types of this server's Hono contexts. */
export interface AppEnv {
  Bindings: Env;
  Variables: {
    config: Config;
    authenticated: Authenticated;
    /** Set for requests that are counted. */
    counting: Counting | undefined;
    requestId: string;
    /** The answer is a stream of events. */
    isStream: true | undefined;
    /** Set for requests that are observed. */
    observation: Observation | undefined;
  };
}
