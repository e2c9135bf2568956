import { logLine } from "@responses-edge/bounded-io/json-text";
import { dialectOf, kindsOf } from "./model-lists.ts";
import type { ModelServer } from "./model-server.ts";
import type { UnsaltedServers } from "./settings.ts";
import { mayServeKinds } from "./tenant-rules.ts";
import { tenantsNotSeparated } from "./upstream-faults.ts";

/**
 * Decides which model servers may get the prompts of several tenants: clients that share a prefix cache can find out
 * each other's prompts by timing.
 */

/** URLs of servers whose warning was logged. */
const warned = new Set<string>();

/**
 * Tells whether a server keeps the prompts of different tenants apart in its prefix cache (`cache_salt`): by its
 * dialect, or because the operator says so. Undefined if the server's kind is unknown.
 */
export function separatesTenants(server: Pick<ModelServer, "baseUrl" | "config">): boolean | undefined {
  const dialect = dialectOf(server);
  return server.config.salted ?? (dialect && dialect.separatesTenants === true);
}

/** Tells whether a server may get prompts of several tenants, as far as is known. */
export function mayServeTenants(server: Pick<ModelServer, "baseUrl" | "config">, setting: UnsaltedServers): boolean {
  return mayServeKinds(kindsOf(server), server.config, setting);
}

/**
 * Throws the 503 of a server of a known kind that may not get prompts because it does not keep tenants apart. Logs
 * once for each server that does not, also if it gets prompts all the same.
 */
export function checkSeparation(server: ModelServer, setting: UnsaltedServers): void {
  const { baseUrl, config } = server;
  const isRefused = !mayServeTenants(server, setting);
  if (separatesTenants(server) && !isRefused) return;
  if (!warned.has(baseUrl)) {
    warned.add(baseUrl);
    console.warn(logLine({ level: "warn", tenants_not_separated: config.name, ...(isRefused && { refused: true }) }));
  }
  if (isRefused) throw tenantsNotSeparated();
}
