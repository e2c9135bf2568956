import type { Config } from "../config/index.ts";
import { type Identity, restrictedConfig } from "../contract/grants.ts";
import type { Env } from "../env.ts";
import { HomeClient } from "../store/home/home-client.ts";
import { FileClient } from "../store/tenant/files/file-client.ts";
import { StoreClient } from "../store/tenant/vector-stores/store-client.ts";
import type { Caller } from "./transport.ts";

/** The bindings of what a tenant has. */

/** A caller's fields that its transport and the platform provide. */
type Provided = Omit<
  Caller,
  "config" | "tenant" | "identity" | "quotas" | "boards" | "homes" | "files" | "stores" | "past"
>;

/** The caller with a key: its configuration, and its tenant's homes, files, vector stores and limits. */
export function callerWith(env: Env, config: Config, identity: Identity, provided: Provided): Caller {
  const { tenant, policy } = identity;
  const homes = new HomeClient(env, tenant);
  return {
    ...provided,
    config: policy ? restrictedConfig(config, policy) : config,
    tenant,
    identity,
    quotas: env.QUOTAS,
    boards: env.BOARD,
    homes,
    // No accessors: an object literal with one has a hidden class of its own, and so would each request.
    files: new FileClient(env, tenant),
    stores: new StoreClient(env, tenant),
    past: homes,
  };
}
