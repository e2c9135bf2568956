import { z } from "zod";
import { modelPrice } from "./keys.ts";
import { routeEntry } from "./routes.ts";
import { defaultName, entriesOf, type RawEntry, serverFields } from "./server-entry.ts";

/**
 * The sources of a configuration: the environment, overridden by the file of `CONFIG_FILE`, overridden by the
 * administrators' changes. Each source may set any part.
 */

/** Variables, as text. Bindings pass through. */
type Texts = Readonly<Record<string, unknown>>;

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

/** The environment, overridden by a file. Model servers are taken as a whole from one of the two. */
export function withFile<Env extends object>(env: Env, file: Texts): Env {
  const merged: Record<string, unknown> = { ...(env as Texts), ...file };
  if (file.UPSTREAMS !== undefined) {
    merged.VLLM_BASE_URL = undefined;
    const names = new Set(entries(file.UPSTREAMS).map(nameOf));
    if (file.UPSTREAM_SECRETS === undefined) merged.UPSTREAM_SECRETS = secretsOf(names, merged.UPSTREAM_SECRETS);
  } else if (file.VLLM_BASE_URL !== undefined) {
    merged.UPSTREAMS = undefined;
    merged.UPSTREAM_SECRETS = undefined;
  }
  return merged as Env;
}

/** The same, overridden by administrators' changes. */
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

/** The model servers of variables, in any of their forms. */
export function serversOf({ UPSTREAMS: pool, VLLM_BASE_URL: url, VLLM: binding }: Texts): RawEntry[] {
  if (pool) return entries(pool);
  if (url) return [{ name: "vllm", url }];
  return binding ? [{ name: "vllm", binding: "VLLM" }] : [];
}

/** The secrets of these servers; undefined if there are none. Invalid JSON is refused elsewhere. */
function secretsOf(names: ReadonlySet<string>, text: unknown): unknown {
  const secrets = parsed(text);
  if (typeof secrets !== "object" || secrets === null || Array.isArray(secrets)) return text;
  const kept = Object.entries(secrets).filter(([name]) => names.has(name));
  return kept.length === 0 ? undefined : JSON.stringify(Object.fromEntries(kept));
}

function entries(text: unknown): RawEntry[] {
  return (entriesOf(parsed(text)) ?? []).filter((entry) => typeof entry === "object" && entry !== null) as RawEntry[];
}

function nameOf(entry: RawEntry): string {
  return typeof entry.name === "string" ? entry.name : defaultName(entry);
}

function parsed(text: unknown): unknown {
  if (typeof text !== "string") return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
