import { logLine } from "@responses-edge/bounded-io/json-text";
import { dialectOf, learnDialect, listModelsOf } from "./model-lists.ts";
import type { ModelServer } from "./model-server.ts";
import type { UnsaltedServers } from "./settings.ts";
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
  const { salted, sharesCache } = server.config;
  if (setting === "refuse") return sharesCache || separatesTenants(server) !== false;
  const isKnownToMix = salted === undefined && dialectOf(server)?.separatesTenants === false;
  return setting !== "auto" || sharesCache || !isKnownToMix;
}

/**
 * Throws the 503 of a server that may not get prompts because it does not keep tenants apart, and as the server does if
 * its kind must be known and is not. Logs once for each server that gets prompts all the same.
 */
export async function checkSeparation(
  server: ModelServer,
  setting: UnsaltedServers,
  signal: AbortSignal,
): Promise<void> {
  const { sharesCache } = server.config;
  const mustKnow = setting === "refuse" && !sharesCache;
  if (separatesTenants(server) === undefined) {
    if (mustKnow) await listModelsOf(server, signal);
    else await learnDialect(server, signal);
  }
  const separates = separatesTenants(server);
  if (separates) return;
  if (!mayServeTenants(server, setting) || (mustKnow && separates === undefined)) throw tenantsNotSeparated();
  if (separates === undefined || warned.has(server.baseUrl)) return;
  warned.add(server.baseUrl);
  console.warn(logLine({ level: "warn", tenants_not_separated: server.config.name }));
}
