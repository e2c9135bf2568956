import { z } from "zod";
import { modelPrice } from "./keys.ts";
import { nameOf, parsed, type RawEntry, secretsOf, serversOf, type Texts } from "./raw-servers.ts";
import { routeEntry } from "./routes.ts";
import { serverFields } from "./server-entry.ts";

/**
 * The sources of a configuration: the environment, overridden by the file of `CONFIG_FILE`, overridden by the
 * administrators' changes. Each source may set any part.
 */

/** Removes an entry of the lower sources. */
const removed = z.literal(false);

/**
 * The part of the configuration that administrators may change: entries by name, in the form of the file. Each replaces the entry
 * of the other sources; `false` removes it. The fields of a model server that are not given keep their values.
 */
export const overridable = {
  upstreams: z.union([removed, serverFields.omit({ name: true, binding: true, discover: true }).partial()]),
  routes: z.union([removed, routeEntry]),
  model_prices: z.union([removed, modelPrice]),
};

/** The administrators' changes as they are stored: the fields as they were given. */
export type Overrides = { [Kind in keyof typeof overridable]?: Record<string, unknown> };

/** The variables that these changes affect. */
export const CHANGED_VARIABLES = [
  { name: "UPSTREAMS", kind: "upstreams" },
  { name: "ROUTES", kind: "routes" },
  { name: "MODEL_ALIASES", kind: "routes" },
  { name: "MODEL_FALLBACKS", kind: "routes" },
  { name: "MODEL_PRICES", kind: "model_prices" },
] as const;

/** These variables in the form of the file: model servers by their names. */
export function fileForm(variables: object): Record<string, unknown> {
  const others = CHANGED_VARIABLES.slice(1).map(({ name }) => [name.toLowerCase(), parsed((variables as Texts)[name])]);
  const servers = serversOf(variables as Texts).map(({ name, ...entry }) => [nameOf({ name, ...entry }), entry]);
  return {
    upstreams: Object.fromEntries(servers),
    ...Object.fromEntries(others.filter(([, said]) => said !== undefined)),
  };
}

/** The environment, overridden by a file (`withFile`) and by administrators' changes. */
export function withOverrides<Env extends object>(
  env: Env,
  { upstreams, routes, model_prices: prices }: Overrides,
): Env {
  const merged: Record<string, unknown> = { ...(env as Texts) };
  if (upstreams) changeServers(merged, upstreams);
  const changed = Object.entries(routes ?? {});
  change(merged, "ROUTES", changed);
  // A removed route is removed from the other variables that define routes, too.
  const removed = changed.filter(([, entry]) => entry === false);
  for (const variable of ["MODEL_ALIASES", "MODEL_FALLBACKS"]) change(merged, variable, removed);
  change(merged, "MODEL_PRICES", Object.entries(prices ?? {}));
  return merged as Env;
}

/** Sets or removes (`false`) entries of a variable that is a JSON object. */
function change(variables: Record<string, unknown>, variable: string, changes: [name: string, entry: unknown][]): void {
  if (changes.length === 0) return;
  const known = parsed(variables[variable]);
  const entries = new Map<string, unknown>(typeof known === "object" && known !== null ? Object.entries(known) : []);
  for (const [name, entry] of changes) {
    entries.delete(name);
    if (entry !== false) entries.set(name, entry);
  }
  variables[variable] = JSON.stringify(Object.fromEntries(entries));
}

function changeServers(variables: Record<string, unknown>, changes: Readonly<Record<string, unknown>>): void {
  const servers = new Map<string, RawEntry>(
    serversOf(variables).map((entry) => [nameOf(entry), { ...entry, name: nameOf(entry) }]),
  );
  for (const [name, given] of Object.entries(changes)) {
    const known = servers.get(name);
    const fields = given as RawEntry;
    if (given === false) servers.delete(name);
    // A changed address gets neither the secrets of the earlier one nor the shared key.
    else if (fields.url !== undefined && fields.url !== known?.url) {
      const { binding: _, discover: _discover, ...rest }: RawEntry = known ?? {};
      servers.set(name, { ...rest, api_key: null, headers: {}, ...fields, name });
    } else if (known) servers.set(name, { ...known, ...fields, name });
  }
  const names = new Set(servers.keys());
  variables.VLLM_BASE_URL = undefined;
  variables.UPSTREAMS = JSON.stringify([...servers.values()]);
  variables.UPSTREAM_SECRETS = secretsOf(names, variables.UPSTREAM_SECRETS);
}
