import type { Dialect } from "./dialects/dialect.ts";
import type { ModelServerConfig, UnsaltedServers } from "./settings.ts";

/** The rule by which servers get the prompts of several tenants. It asks nothing, so that the command uses it, too. */

/**
 * Tells whether a server may get them. `kinds` are those that stand behind its URL, as far as is known: several behind
 * a proxy.
 */
export function mayServeKinds(
  kinds: readonly Dialect[],
  { salted, sharesCache }: Pick<ModelServerConfig, "salted" | "sharesCache">,
  setting: UnsaltedServers,
): boolean {
  if (sharesCache || setting === "warn" || setting === undefined) return true;
  if (setting === "refuse") return salted ?? kinds.every(({ separatesTenants }) => separatesTenants === true);
  return salted !== undefined || !kinds.some(({ separatesTenants }) => separatesTenants === false);
}

/** The remedies of an operator whose server may not. */
export const SEPARATION_REMEDY =
  'If its tenants may share a cache, whose timing tells one what another has asked, set "shared_cache": true for it in UPSTREAMS, or UNSALTED_SERVERS=warn for all servers.';
